; rustc 1.95.0 (59807616e 2026-04-14)
    push rbp
    push r15
    push r14
    push r13
    push r12
    push rbx
    push rax
    mov r14d,[rdi+0x40]
    cmp r14d,[rdi+0x20]
    jne .11
    mov r15,[rdx+8]
    mov eax,5
    cmp r15d,0x80000000
    ja .10
.1:
    mov ebx,[rdi+0x24]
    mov r12,[rdx]
    mov ecx,[rdi+0x28]
    cmp r15d,1
    mov r13d,2
    sbb r13d,0
    cmp ebx,ecx
    je .12
.2:
    or r13d,[rdi+0x2C]
    mov rdx,[rdi]
    movzx eax,r14w
    shl rax,0x28
    or rax,r13
    mov r8,0xA00000000
    or r8,rax
    bswap r8
    mov r10,[rdi+8]
    mov r11d,[rdi+0x18]
    and r11d,r14d
    mov r9,r11
    shl r9,6
    mov [rdx+r9],r8
    mov qword [rdx+r9+8],0x8000000
    test r15d,r15d
    je .3
    bswap r12
    mov rax,r15
    rol rax,0x20
    mov r13,0x7FFFFFFFFFFFFFFF
    and r13,rax
    bswap r13
    mov [rdx+r9+0x10],r13
    mov [rdx+r9+0x18],r12
.3:
    inc ebx
    lea eax,[r14+1]
    shl r11,4
    mov [r10+r11],rsi
    mov [r10+r11+8],eax
    mov [r10+r11+0xC],ebx
    cmp dword [rdi+0x48],0
    jne .13
    mov rsi,[rdi+0x50]
    movzx r10d,ax
    bswap r10d
    mov [rsi+4],r10d
    cmp dword [rdi+0x6C],0
    je .4
    sfence
    test r15d,r15d
    je .5
    mov rsi,[rdi+0x58]
    mov r8d,[rdi+0x68]
    mov r10,[rdx+r9]
    mov [rsi+r8],r10
    mov r10,[rdx+r9+8]
    mov [rsi+r8+8],r10
    mov r10,[rdx+r9+0x10]
    mov [rsi+r8+0x10],r10
    mov r10,[rdx+r9+0x18]
    mov [rsi+r8+0x18],r10
    movaps xmm0,[rdx+r9+0x20]
    movaps [rsi+r8+0x20],xmm0
    movaps xmm0,[rdx+r9+0x30]
    movaps [rsi+r8+0x30],xmm0
    cmp dword [rdi+0x70],0
    jne .7
    jmp .6
.4:
    mov rdx,[rdi+0x58]
    mov esi,[rdi+0x68]
    mov [rdx+rsi],r8
    jmp .8
.5:
    mov rdx,[rdi+0x58]
    mov esi,[rdi+0x68]
    mov [rdx+rsi],r8
.6:
    sfence
.7:
    mov edx,[rdi+0x6C]
    xor [rdi+0x68],edx
.8:
    mov [rdi+0x28],ecx
    mov [rdi+0x20],eax
    mov [rdi+0x24],ebx
    mov [rdi+0x40],eax
.9:
    mov eax,0x11
.10:
    add rsp,8
    pop rbx
    pop r12
    pop r13
    pop r14
    pop r15
    pop rbp
    ret
.11:
    mov rbx,rdi
    mov r14,rsi
    mov r15,rdx
    call qword [rel uverbs_mlx5::send::queue::Sq::disown]
    mov rdx,r15
    mov rsi,r14
    mov rdi,rbx
    mov r14d,[rbx+0x20]
    mov r15,[rdx+8]
    mov eax,5
    cmp r15d,0x80000000
    jbe .1
    jmp .10
.12:
    mov [rsp],rsi
    mov rbp,rdi
    mov esi,r14d
    mov edx,ebx
    mov ecx,1
    call qword [rel uverbs_mlx5::send::queue::room::<impl uverbs_mlx5::send::queue::Sq>::make_room]
    mov ecx,eax
    mov eax,edx
    test cl,1
    je .14
    mov ecx,ebx
    cmp eax,0x11
    mov rdi,rbp
    mov rsi,[rsp]
    je .2
    jmp .10
.13:
    mov esi,eax
    mov edx,ebx
    mov r8d,r14d
    call qword [rel uverbs_mlx5::send::rekey::<impl uverbs_mlx5::send::queue::Sq>::publish_behind_umr]
    jmp .9
.14:
    mov ecx,eax
    mov rdi,rbp
    mov rsi,[rsp]
    jmp .2
