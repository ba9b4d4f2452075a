; rustc 1.95.0 (59807616e 2026-04-14)
    push rbp
    push r15
    push r14
    push r13
    push r12
    push rbx
    sub rsp,0x38
    mov r15,r8
    mov r12,rcx
    mov [rsp+0x30],rdx
    mov rbp,rdi
    mov r14d,[rsi+0x40]
    mov r13,[rsi+0x20]
    cmp r14d,r13d
    jne .11
.1:
    mov [rsp+0x18],rbp
    mov rax,[r12+0x20]
    mov edx,7
    cmp rax,[rsi+0xC8]
    jne .13
    mov rax,r15
    shr rax,0x20
    and eax,0xFFFFFFF
    mov rbp,[r12+0x18]
    mov [rsp+0x28],rbp
    shr rbp,0x20
    imul rbp,rax
    add rbp,[r12+0x10]
    mov eax,r15d
    and eax,0x7FFFFFFF
    cmp rax,1
    mov ebx,2
    sbb ebx,0
    mov r10d,[rsi+0x28]
    mov rax,r13
    shr rax,0x20
    cmp r10d,eax
    je .12
    mov rax,r13
.2:
    mov rcx,r15
    or ebx,[rsi+0x2C]
    shl rcx,0x21
    movzx edx,r13w
    shl rdx,0x28
    or rdx,rbx
    mov r8,0xA00000000
    or r8,rdx
    and r14d,[rsi+0x18]
    shl r14d,4
    mov rdi,[rsi]
    bswap r8
    mov rdx,[rsi+8]
    mov [rdi+r14*4],r8
    mov qword [rdi+r14*4+8],0x8000000
    test rcx,rcx
    je .3
    bswap rbp
    mov r8,r15
    shl r8,0x20
    mov r9d,[rsp+0x28]
    or r9,r8
    bswap r9
    mov [rdi+r14*4+0x10],r9
    mov [rdi+r14*4+0x18],rbp
.3:
    mov rdi,0x100000001
    add rax,rdi
    mov rdi,[rsp+0x30]
    mov [rdx+r14],rdi
    mov [rdx+r14+8],rax
    mov [rsi+0x40],eax
    cmp byte [rsi+0x44],0
    jne .4
    mov byte [rsi+0x44],1
    mov rdx,[rsi+0x78]
    mov edi,[rdx+0x48]
    test edi,edi
    jne .4
    mov dword [rdx+0x48],1
.4:
    mov rdx,[rsi+0x10]
    mov [rdx+r14],r12
    mov [rdx+r14+8],r15
    cmp dword [rsi+0x48],0
    mov rbx,[rsp+0x18]
    jne .15
    mov rdx,[rsi+0x50]
    movzx edi,ax
    bswap edi
    mov [rdx+4],edi
    mov rdx,[rsi]
    cmp dword [rsi+0x6C],0
    je .5
    sfence
    test rcx,rcx
    je .6
    mov rcx,[rsi+0x58]
    mov edi,[rsi+0x68]
    mov r8,[rdx+r14*4]
    mov [rcx+rdi],r8
    mov r8,[rdx+r14*4+8]
    mov [rcx+rdi+8],r8
    mov r8,[rdx+r14*4+0x10]
    mov [rcx+rdi+0x10],r8
    mov r8,[rdx+r14*4+0x18]
    mov [rcx+rdi+0x18],r8
    movaps xmm0,[rdx+r14*4+0x20]
    movaps [rcx+rdi+0x20],xmm0
    movaps xmm0,[rdx+r14*4+0x30]
    movaps [rcx+rdi+0x30],xmm0
    cmp dword [rsi+0x70],0
    jne .8
    jmp .7
.5:
    mov rcx,[rdx+r14*4]
    mov rdx,[rsi+0x58]
    mov edi,[rsi+0x68]
    mov [rdx+rdi],rcx
    jmp .9
.6:
    mov rcx,[rdx+r14*4]
    mov rdx,[rsi+0x58]
    mov edi,[rsi+0x68]
    mov [rdx+rdi],rcx
.7:
    sfence
.8:
    mov ecx,[rsi+0x6C]
    xor [rsi+0x68],ecx
.9:
    mov [rsi+0x28],r10d
    mov [rsi+0x20],rax
    mov [rsi+0x40],eax
.10:
    mov edx,0x11
    jmp .14
.11:
    mov rbx,rsi
    mov rdi,rsi
    call qword [rel uverbs_mlx5::send::queue::Sq::disown]
    mov rsi,rbx
    mov r14,[rbx+0x20]
    mov r13,r14
    jmp .1
.12:
    lea rax,[r12+0x10]
    mov [rsp+0x20],rax
    mov [rsp+0x10],rsi
    mov rdi,rsi
    mov esi,r14d
    mov [rsp+0xC],r10d
    mov edx,r10d
    mov ecx,1
    call qword [rel uverbs_mlx5::send::queue::room::<impl uverbs_mlx5::send::queue::Sq>::make_room]
    test al,1
    je .16
    mov rax,r13
    cmp edx,0x11
    mov rsi,[rsp+0x10]
    mov r10d,[rsp+0xC]
    je .2
.13:
    mov rbx,[rsp+0x18]
    mov [rbx],r12
    mov [rbx+8],r15
.14:
    mov [rbx+0x10],edx
    mov rax,rbx
    add rsp,0x38
    pop rbx
    pop r12
    pop r13
    pop r14
    pop r15
    pop rbp
    ret
.15:
    mov rdi,rsi
    mov rsi,rax
    mov edx,r10d
    mov ecx,1
    call qword [rel uverbs_mlx5::send::rekey::<impl uverbs_mlx5::send::queue::Sq>::publish_behind_umr]
    jmp .10
.16:
    cmp r14d,0xFFFFFFFF
    mov rsi,[rsp+0x10]
    je .18
    xor eax,eax
.17:
    add rax,r13
    mov r10d,edx
    jmp .2
.18:
    mov rax,0xFFFFFFFF00000000
    jmp .17
    mov rdi,[rsp+0x20]
    mov rbx,rax
    mov rsi,r15
    call qword [rel uverbs_core::memory::registered::give_back]
    mov rdi,rbx
    call _Unwind_Resume
    mov rbx,rax
    add r12,0x10
    mov rdi,r12
    mov rsi,r15
    call qword [rel uverbs_core::memory::registered::give_back]
    mov rdi,rbx
    call _Unwind_Resume
