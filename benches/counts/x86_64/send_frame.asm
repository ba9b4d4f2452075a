; rustc 1.95.0 (59807616e 2026-04-14)
    push rbp
    push r15
    push r14
    push r13
    push r12
    push rbx
    sub rsp,0x38
    mov r14,r8
    mov r15,rcx
    mov rbp,rdx
    mov rbx,rdi
    mov r13d,[rsi+0x40]
    mov r12,[rsi+0x20]
    cmp r13d,r12d
    jne .14
.1:
    mov [rsp+0x30],rbp
    mov rax,[r15+0x20]
    mov edx,7
    cmp rax,[rsi+0xC8]
    jne .2
    mov edx,5
    cmp r14d,0x80000000
    jbe .3
.2:
    mov [rbx],r15
    mov [rbx+8],r14
    jmp .13
.3:
    mov r10d,[rsi+0x28]
    mov rax,r14
    shr rax,0x20
    and eax,0xFFFFFFF
    mov ecx,[r15+0x18]
    imul rcx,rax
    add rcx,[r15+0x10]
    mov [rsp+0x28],rcx
    cmp r14d,1
    mov ebp,2
    sbb ebp,0
    mov eax,[r15+0x1C]
    mov [rsp+0x20],rax
    mov rax,r12
    shr rax,0x20
    cmp r10d,eax
    je .15
    mov rax,r12
.4:
    or ebp,[rsi+0x2C]
    mov rdx,[rsi]
    movzx ecx,r12w
    shl rcx,0x28
    or rcx,rbp
    mov r8,0xA00000000
    or r8,rcx
    bswap r8
    mov rdi,[rsi+8]
    and r13d,[rsi+0x18]
    mov ecx,r13d
    shl ecx,4
    mov [rdx+rcx*4],r8
    mov qword [rdx+rcx*4+8],0x8000000
    test r14d,r14d
    je .5
    mov r9,[rsp+0x28]
    bswap r9
    mov r8d,r14d
    and r8d,0x7FFFFFFF
    shl r8,0x20
    add r8,[rsp+0x20]
    bswap r8
    mov [rdx+rcx*4+0x10],r8
    mov [rdx+rcx*4+0x18],r9
.5:
    mov rdx,0x100000001
    add rax,rdx
    mov rdx,[rsp+0x30]
    mov [rdi+rcx],rdx
    mov [rdi+rcx+8],rax
    mov [rsi+0x40],eax
    cmp byte [rsi+0x44],0
    jne .6
    mov byte [rsi+0x44],1
    mov rdx,[rsi+0x78]
    mov edi,[rdx+0x48]
    test edi,edi
    jne .6
    mov dword [rdx+0x48],1
.6:
    mov rdx,[rsi+0x10]
    mov edi,r13d
    shl rdi,4
    mov [rdx+rdi],r15
    mov [rdx+rdi+8],r14
    cmp dword [rsi+0x48],0
    jne .16
    mov rdx,[rsi+0x50]
    movzx edi,ax
    bswap edi
    mov [rdx+4],edi
    mov rdx,[rsi]
    cmp dword [rsi+0x6C],0
    je .7
    sfence
    test r14d,r14d
    je .8
    mov rdi,[rsi+0x58]
    mov r8d,[rsi+0x68]
    mov r9,[rdx+rcx*4]
    mov [rdi+r8],r9
    mov r9,[rdx+rcx*4+8]
    mov [rdi+r8+8],r9
    mov r9,[rdx+rcx*4+0x10]
    mov [rdi+r8+0x10],r9
    mov r9,[rdx+rcx*4+0x18]
    mov [rdi+r8+0x18],r9
    movaps xmm0,[rdx+rcx*4+0x20]
    movaps [rdi+r8+0x20],xmm0
    movaps xmm0,[rdx+rcx*4+0x30]
    movaps [rdi+r8+0x30],xmm0
    cmp dword [rsi+0x70],0
    jne .10
    jmp .9
.7:
    mov rcx,[rdx+rcx*4]
    mov rdx,[rsi+0x58]
    mov edi,[rsi+0x68]
    mov [rdx+rdi],rcx
    jmp .11
.8:
    mov rcx,[rdx+rcx*4]
    mov rdx,[rsi+0x58]
    mov edi,[rsi+0x68]
    mov [rdx+rdi],rcx
.9:
    sfence
.10:
    mov ecx,[rsi+0x6C]
    xor [rsi+0x68],ecx
.11:
    mov [rsi+0x28],r10d
    mov [rsi+0x20],rax
    mov [rsi+0x40],eax
.12:
    mov edx,0x11
.13:
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
.14:
    mov r12,rsi
    mov rdi,rsi
    call qword [rel uverbs_mlx5::send::queue::Sq::disown]
    mov rsi,r12
    mov r13,[r12+0x20]
    mov r12,r13
    jmp .1
.15:
    lea rax,[r15+0x10]
    mov [rsp+0x18],rax
    mov [rsp+0x10],rsi
    mov rdi,rsi
    mov esi,r13d
    mov [rsp+0xC],r10d
    mov edx,r10d
    mov ecx,1
    call qword [rel uverbs_mlx5::send::queue::room::<impl uverbs_mlx5::send::queue::Sq>::make_room]
    test al,1
    je .17
    mov rax,r12
    cmp edx,0x11
    mov rsi,[rsp+0x10]
    mov r10d,[rsp+0xC]
    jne .2
    jmp .4
.16:
    mov rdi,rsi
    mov rsi,rax
    mov edx,r10d
    mov ecx,1
    call qword [rel uverbs_mlx5::send::rekey::<impl uverbs_mlx5::send::queue::Sq>::publish_behind_umr]
    jmp .12
.17:
    cmp r13d,0xFFFFFFFF
    je .19
    xor eax,eax
.18:
    add rax,r12
    mov r10d,edx
    mov rsi,[rsp+0x10]
    jmp .4
.19:
    mov rax,0xFFFFFFFF00000000
    jmp .18
    mov rdi,[rsp+0x18]
    mov rbx,rax
    mov rsi,r14
    call qword [rel uverbs_core::memory::registered::give_back]
    mov rdi,rbx
    call _Unwind_Resume
    mov rbx,rax
    add r15,0x10
    mov rdi,r15
    mov rsi,r14
    call qword [rel uverbs_core::memory::registered::give_back]
    mov rdi,rbx
    call _Unwind_Resume
