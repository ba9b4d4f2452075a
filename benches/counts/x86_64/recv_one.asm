; rustc 1.95.0 (59807616e 2026-04-14)
    push rbp
    push r15
    push r14
    push r13
    push r12
    push rbx
    push rax
    mov ebx,[rdi+0x30]
    cmp ebx,[rdi+0x24]
    jne .7
.1:
    mov r15d,[rdx+8]
    mov ecx,0x80000000
    mov eax,5
    cmp r15,rcx
    ja .5
    mov eax,[rdi+0x28]
    mov r12,[rdx]
    mov r13d,[rdx+0xC]
    test eax,eax
    je .8
    dec eax
.2:
    mov r8d,[rdi+0x20]
    mov ecx,[rdi+0x18]
    and ecx,ebx
    mov r9,rcx
    imul r9,r8
    add r9,[rdi]
    mov rdx,[rdi+8]
    test r15,r15
    je .6
    and r15d,0x7FFFFFFF
    bswap r12
    shl r15,0x20
    or r15,r13
    bswap r15
    mov [r9],r15
    mov [r9+8],r12
    add r9,0x10
    mov r10d,0x10
    cmp r10d,r8d
    jae .4
.3:
    movups xmm0,[rel .rodata]
    movups [r9],xmm0
.4:
    inc ebx
    shl rcx,4
    mov [rdx+rcx],rsi
    mov [rdx+rcx+8],ebx
    mov rcx,[rdi+0x38]
    movzx edx,bx
    bswap edx
    mov [rcx],edx
    mov [rdi+0x24],ebx
    mov [rdi+0x28],eax
    mov [rdi+0x30],ebx
    mov eax,0x11
.5:
    add rsp,8
    pop rbx
    pop r12
    pop r13
    pop r14
    pop r15
    pop rbp
    ret
.6:
    xor r10d,r10d
    cmp r10d,r8d
    jb .3
    jmp .4
.7:
    mov rbx,rdi
    mov r14,rsi
    mov r15,rdx
    call qword [rel uverbs_mlx5::recv::queue::Rq::disown]
    mov rdx,r15
    mov rsi,r14
    mov rdi,rbx
    mov ebx,[rbx+0x24]
    jmp .1
.8:
    mov r14,rdi
    mov rbp,rsi
    mov esi,ebx
    call qword [rel uverbs_mlx5::recv::queue::Rq::make_room]
    mov rsi,rbp
    mov rdi,r14
    mov ecx,eax
    mov eax,edx
    test cl,1
    je .2
    jmp .5
