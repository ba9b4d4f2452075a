; rustc 1.95.0 (59807616e 2026-04-14)
    push rbp
    push r15
    push r14
    push r13
    push r12
    push rbx
    push rax
    mov r15d,[rdi+0x20]
    cmp r15d,[rdi+0x10]
    jne .6
    cmp dword [rdi+0x1C],0
    je .7
.1:
    mov r12d,[rdx+8]
    mov al,4
    cmp r12d,0x80000000
    ja .8
    mov r13,[rdx]
    mov ebp,[rdx+0xC]
    lea ebx,[r15+1]
    mov eax,ebx
    sub eax,[rdi+0x14]
    cmp eax,[rdi+0x18]
    ja .9
.2:
    mov eax,[rdi+8]
    and eax,r15d
    mov ecx,[rdi+0xC]
    imul rax,rcx
    add rax,[rdi]
    test r12,r12
    je .5
    and r12d,0x7FFFFFFF
    bswap r13
    shl r12,0x20
    or r12,rbp
    bswap r12
    mov [rax],r12
    mov [rax+8],r13
    add rax,0x10
    mov ecx,[rdi+0xC]
    mov edx,0x10
    cmp edx,ecx
    jae .4
.3:
    movups xmm0,[rel .rodata]
    movups [rax],xmm0
.4:
    mov rax,[rdi+0x30]
    mov rcx,[rax+0x200]
    and r15d,[rax+0x220]
    shl r15,4
    mov [rcx+r15],rsi
    mov [rcx+r15+8],ebx
    mov al,7
    cmp ebx,[rdi+0x10]
    je .8
    mov rcx,[rdi+0x28]
    movzx edx,bx
    bswap edx
    mov [rcx],edx
    mov [rdi+0x10],ebx
    mov [rdi+0x20],ebx
    jmp .8
.5:
    xor edx,edx
    cmp edx,ecx
    jb .3
    jmp .4
.6:
    mov rbx,rdi
    mov r14,rsi
    mov r15,rdx
    call qword [rel uverbs_mlx5::rq::Rq::disown]
    mov rdx,r15
    mov rsi,r14
    mov rdi,rbx
    mov r15d,[rbx+0x10]
    cmp dword [rdi+0x1C],0
    jne .1
.7:
    mov al,2
.8:
    add rsp,8
    pop rbx
    pop r12
    pop r13
    pop r14
    pop r15
    pop rbp
    ret
.9:
    mov r14,rdi
    mov [rsp],rsi
    mov esi,ebx
    call qword [rel uverbs_mlx5::rq::Rq::make_room]
    mov rsi,[rsp]
    mov rdi,r14
    cmp al,7
    je .2
    jmp .8
