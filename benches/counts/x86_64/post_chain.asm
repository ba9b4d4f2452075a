; rustc 1.95.0 (59807616e 2026-04-14)
    push rbp
    push r15
    push r14
    push r13
    push r12
    push rbx
    sub rsp,0x38
    mov eax,[rdi+0x40]
    cmp eax,[rdi+0x20]
    jne .19
    test rcx,rcx
    je .17
.1:
    mov ebx,[rdi+0x24]
    mov r11d,[rdi+0x28]
    mov r8,rcx
    shl r8,4
    cmp rcx,1
    mov [rsp+0x14],eax
    mov [rsp+0x28],r8
    jne .5
    mov r14d,eax
.2:
    add rdx,[rsp+0x28]
    mov r12,[rdx-8]
    mov eax,5
    cmp r12d,0x80000000
    ja .18
    mov r15,[rdx-0x10]
    cmp r12d,1
    mov r13d,1
    sbb r13d,0xFFFFFFFF
    cmp ebx,r11d
    je .20
.3:
    or r13d,[rdi+0x2C]
    mov rcx,[rdi]
    movzx eax,r14w
    shl rax,0x28
    or rax,r13
    mov rdx,0xA00000000
    or rdx,rax
    bswap rdx
    mov r9,[rdi+8]
    mov r10d,[rdi+0x18]
    and r10d,r14d
    mov r8,r10
    shl r8,6
    mov [rcx+r8],rdx
    mov qword [rcx+r8+8],0x8000000
    test r12d,r12d
    je .4
    bswap r15
    mov eax,0xFFFFFFFF
    mov ebp,r11d
    mov r11,0x7FFFFFFF00000000
    or r11,rax
    mov rax,r12
    rol rax,0x20
    and rax,r11
    mov r11d,ebp
    bswap rax
    mov [rcx+r8+0x10],rax
    mov [rcx+r8+0x18],r15
.4:
    inc ebx
    lea eax,[r14+1]
    shl r10,4
    mov [r9+r10],rsi
    mov [r9+r10+8],eax
    mov [r9+r10+0xC],ebx
    mov r10d,[rsp+0x14]
    cmp eax,r10d
    je .17
    cmp dword [rdi+0x48],0
    jne .22
    mov rsi,[rdi+0x50]
    movzx r9d,ax
    bswap r9d
    mov [rsi+4],r9d
    cmp dword [rdi+0x6C],0
    je .12
    sfence
    cmp r14d,r10d
    jne .13
    test r12d,r12d
    je .13
    mov rdx,[rdi+0x58]
    mov esi,[rdi+0x68]
    mov r9,[rcx+r8]
    mov [rdx+rsi],r9
    mov r9,[rcx+r8+8]
    mov [rdx+rsi+8],r9
    mov r9,[rcx+r8+0x10]
    mov [rdx+rsi+0x10],r9
    mov r9,[rcx+r8+0x18]
    mov [rdx+rsi+0x18],r9
    movaps xmm0,[rcx+r8+0x20]
    movaps [rdx+rsi+0x20],xmm0
    movaps xmm0,[rcx+r8+0x30]
    movaps [rdx+rsi+0x30],xmm0
    cmp dword [rdi+0x70],0
    jne .15
    jmp .14
.5:
    lea rcx,[rdx+r8]
    add rcx,0xFFFFFFFFFFFFFFF0
    mov [rsp+0x30],rcx
    mov r12,rdx
    mov r14d,eax
    jmp .7
.6:
    inc ebx
    inc r14d
    shl rcx,4
    mov [rax+rcx],rsi
    mov [rax+rcx+8],r14d
    mov [rax+rcx+0xC],ebx
    add r12,0x10
    cmp r12,[rsp+0x30]
    je .2
.7:
    mov r13,[r12+8]
    cmp r13d,0x80000000
    ja .11
    mov r15,[r12]
    cmp r13d,1
    mov ebp,2
    sbb ebp,0
    cmp ebx,r11d
    je .9
.8:
    mov r8,[rdi]
    mov rax,[rdi+8]
    mov ecx,[rdi+0x18]
    and ecx,r14d
    movzx r9d,r14w
    shl r9,0x28
    or ebp,[rdi+0x2C]
    or rbp,r9
    mov r9,0xA00000000
    or rbp,r9
    bswap rbp
    mov r9,rcx
    shl r9,6
    mov [r8+r9],rbp
    mov qword [r8+r9+8],0
    test r13d,r13d
    je .6
    mov r10,r13
    bswap r15
    shr r10,0x20
    shl r13,0x20
    mov rbp,0x7FFFFFFF00000000
    and r13,rbp
    or r13,r10
    bswap r13
    mov [r8+r9+0x10],r13
    mov [r8+r9+0x18],r15
    jmp .6
.9:
    mov [rsp+0x20],rdx
    mov [rsp+8],rsi
    mov [rsp+0x18],rdi
    mov esi,r14d
    mov [rsp+0x10],r11d
    mov edx,r11d
    mov ecx,1
    call qword [rel uverbs_mlx5::send::queue::room::<impl uverbs_mlx5::send::queue::Sq>::make_room]
    mov ecx,eax
    mov eax,edx
    test cl,1
    je .10
    cmp eax,0x11
    mov rdi,[rsp+0x18]
    mov rsi,[rsp+8]
    mov rdx,[rsp+0x20]
    mov r11d,[rsp+0x10]
    je .8
    jmp .18
.10:
    mov r11d,eax
    mov rdi,[rsp+0x18]
    mov rsi,[rsp+8]
    mov rdx,[rsp+0x20]
    jmp .8
.11:
    mov eax,5
    jmp .18
.12:
    mov rcx,[rdi+0x58]
    mov esi,[rdi+0x68]
    mov [rcx+rsi],rdx
    jmp .16
.13:
    mov rcx,[rdi+0x58]
    mov esi,[rdi+0x68]
    mov [rcx+rsi],rdx
.14:
    sfence
.15:
    mov ecx,[rdi+0x6C]
    xor [rdi+0x68],ecx
.16:
    mov [rdi+0x28],r11d
    mov [rdi+0x20],eax
    mov [rdi+0x24],ebx
    mov [rdi+0x40],eax
.17:
    mov eax,0x11
.18:
    add rsp,0x38
    pop rbx
    pop r12
    pop r13
    pop r14
    pop r15
    pop rbp
    ret
.19:
    mov rbx,rdi
    mov r15,rsi
    mov r12,rdx
    mov r14,rcx
    call qword [rel uverbs_mlx5::send::queue::Sq::disown]
    mov rcx,r14
    mov rdx,r12
    mov rsi,r15
    mov rdi,rbx
    mov eax,[rbx+0x20]
    test rcx,rcx
    jne .1
    jmp .17
.20:
    mov [rsp+8],rsi
    mov rbp,rdi
    mov esi,r14d
    mov edx,ebx
    mov ecx,1
    call qword [rel uverbs_mlx5::send::queue::room::<impl uverbs_mlx5::send::queue::Sq>::make_room]
    mov ecx,eax
    mov eax,edx
    test cl,1
    je .21
    mov r11d,ebx
    cmp eax,0x11
    mov rdi,rbp
    mov rsi,[rsp+8]
    je .3
    jmp .18
.21:
    mov r11d,eax
    mov rdi,rbp
    mov rsi,[rsp+8]
    jmp .3
.22:
    mov esi,eax
    mov edx,ebx
    mov ecx,r11d
    mov r8d,r14d
    call qword [rel uverbs_mlx5::send::rekey::<impl uverbs_mlx5::send::queue::Sq>::publish_behind_umr]
    jmp .17
