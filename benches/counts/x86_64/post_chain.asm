; rustc 1.95.0 (59807616e 2026-04-14)
    push rbp
    push r15
    push r14
    push r13
    push r12
    push rbx
    sub rsp,0x48
    mov eax,[rdi+0x38]
    cmp eax,[rdi+0x20]
    jne .20
    test rcx,rcx
    je .18
.1:
    mov r8d,[rdi+0x88]
    mov [rsp+0x2C],r8d
    mov r8d,[rdi+0x8C]
    mov [rsp+0x28],r8d
    mov r10d,[rdi+0x24]
    mov r8d,[rdi+0x28]
    mov [rsp+0xC],r8d
    mov r8,rcx
    shl r8,4
    cmp rcx,1
    mov [rsp+0x1C],eax
    mov [rsp+0x40],r8
    jne .6
    mov r14d,eax
.2:
    add rdx,[rsp+0x40]
    mov rbp,[rdx-8]
    mov eax,5
    cmp ebp,0x80000000
    ja .19
    mov r11,[rdx-0x10]
    cmp ebp,1
    mov r15d,1
    sbb r15d,0xFFFFFFFF
    test r10d,r10d
    je .21
    dec r10d
.3:
    or r15d,[rdi+0x2C]
    mov r9,[rdi]
    movzx eax,r14w
    shl eax,8
    or eax,0xA
    shl rax,0x20
    or r15,rax
    bswap r15
    mov rax,[rdi+8]
    mov ecx,[rdi+0x18]
    and ecx,r14d
    mov r13,rcx
    shl r13,6
    mov [r9+r13],r15
    mov qword [r9+r13+8],0x8000000
    test ebp,ebp
    je .4
    bswap r11
    mov edx,0xFFFFFFFF
    mov r8,0x7FFFFFFF00000000
    or r8,rdx
    mov rdx,rbp
    rol rdx,0x20
    and rdx,r8
    bswap rdx
    mov [r9+r13+0x10],rdx
    mov [r9+r13+0x18],r11
.4:
    mov edx,[rsp+0xC]
    inc edx
    lea r8d,[r14+1]
    shl rcx,4
    mov [rax+rcx],rsi
    mov [rax+rcx+8],r8d
    mov [rax+rcx+0xC],edx
    cmp r8d,[rsp+0x1C]
    je .18
    mov ebx,edx
    cmp dword [rsp+0x2C],0
    jne .23
.5:
    mov rax,[rdi+0x40]
    movzx ecx,r8w
    bswap ecx
    mov [rax+4],ecx
    cmp byte [rdi+0x48],1
    jne .13
    mov rax,[rdi+0x50]
    mov [rax],r15
    jmp .17
.6:
    lea rcx,[rdx+r8]
    add rcx,0xFFFFFFFFFFFFFFF0
    mov [rsp+0x20],rcx
    mov r13d,eax
    shl r13d,8
    mov r15,rdx
    mov r14d,eax
    jmp .8
.7:
    mov eax,[rsp+0xC]
    inc eax
    inc r14d
    shl r8,4
    mov [rcx+r8],rsi
    mov [rcx+r8+8],r14d
    mov [rsp+0xC],eax
    mov [rcx+r8+0xC],eax
    add r15,0x10
    add r13d,0x100
    cmp r15,[rsp+0x20]
    je .2
.8:
    mov rbp,[r15+8]
    cmp ebp,0x80000000
    ja .12
    mov r12,[r15]
    cmp ebp,1
    mov ebx,2
    sbb ebx,0
    test r10d,r10d
    je .10
    dec r10d
.9:
    or ebx,[rdi+0x2C]
    mov rax,[rdi]
    mov ecx,r13d
    and ecx,0xFFFF00
    or ecx,0xA
    shl rcx,0x20
    or rbx,rcx
    bswap rbx
    mov rcx,[rdi+8]
    mov r8d,[rdi+0x18]
    and r8d,r14d
    mov r9,r8
    shl r9,6
    mov [rax+r9],rbx
    mov qword [rax+r9+8],0
    test ebp,ebp
    je .7
    mov ebx,r10d
    mov r10,rbp
    bswap r12
    shr r10,0x20
    shl rbp,0x20
    mov r11,0x7FFFFFFF00000000
    and rbp,r11
    or rbp,r10
    mov r10d,ebx
    bswap rbp
    mov [rax+r9+0x10],rbp
    mov [rax+r9+0x18],r12
    jmp .7
.10:
    mov [rsp+0x38],rdx
    mov [rsp+0x30],rsi
    mov [rsp+0x10],rdi
    mov esi,r14d
    mov edx,[rsp+0xC]
    mov ecx,1
    call qword [rel uverbs_mlx5::sq::Sq::make_room]
    mov ecx,eax
    mov eax,edx
    test cl,1
    je .11
    xor r10d,r10d
    cmp eax,0xC
    mov rdi,[rsp+0x10]
    mov rsi,[rsp+0x30]
    mov rdx,[rsp+0x38]
    je .9
    jmp .19
.11:
    mov r10d,eax
    mov rdi,[rsp+0x10]
    mov rsi,[rsp+0x30]
    mov rdx,[rsp+0x38]
    jmp .9
.12:
    mov eax,5
    jmp .19
.13:
    sfence
    mov rax,[rdi+0x58]
    mov ecx,[rdi+0x4C]
    cmp r14d,[rsp+0x1C]
    jne .14
    test ebp,ebp
    je .14
    mov rdx,[r9+r13]
    mov [rax+rcx],rdx
    mov rdx,[r9+r13+8]
    mov [rax+rcx+8],rdx
    mov rdx,[r9+r13+0x10]
    mov [rax+rcx+0x10],rdx
    mov rdx,[r9+r13+0x18]
    mov [rax+rcx+0x18],rdx
    mov rdx,[r9+r13+0x20]
    mov [rax+rcx+0x20],rdx
    mov rdx,[r9+r13+0x28]
    mov [rax+rcx+0x28],rdx
    mov rdx,[r9+r13+0x30]
    mov [rax+rcx+0x30],rdx
    mov rdx,[r9+r13+0x38]
    mov [rax+rcx+0x38],rdx
    cmp byte [rdi+0x49],0
    jne .15
    jmp .16
.14:
    mov [rax+rcx],r15
.15:
    sfence
.16:
    mov eax,[rdi+0x50]
    xor [rdi+0x4C],eax
.17:
    mov [rdi+0x20],r8d
    mov [rdi+0x24],r10d
    mov [rdi+0x28],ebx
    mov [rdi+0x38],r8d
.18:
    mov eax,0xC
.19:
    add rsp,0x48
    pop rbx
    pop r12
    pop r13
    pop r14
    pop r15
    pop rbp
    ret
.20:
    mov rbx,rdi
    mov r15,rsi
    mov r12,rdx
    mov r14,rcx
    call qword [rel uverbs_mlx5::sq::Sq::disown]
    mov rcx,r14
    mov rdx,r12
    mov rsi,r15
    mov rdi,rbx
    mov eax,[rbx+0x20]
    test rcx,rcx
    jne .1
    jmp .18
.21:
    mov r13,r11
    mov rbx,rsi
    mov r12,rdi
    mov esi,r14d
    mov edx,[rsp+0xC]
    mov ecx,1
    call qword [rel uverbs_mlx5::sq::Sq::make_room]
    mov ecx,eax
    mov eax,edx
    test cl,1
    je .22
    xor r10d,r10d
    cmp eax,0xC
    mov rdi,r12
    mov rsi,rbx
    mov r11,r13
    je .3
    jmp .19
.22:
    mov r10d,eax
    mov rdi,r12
    mov rsi,rbx
    mov r11,r13
    jmp .3
.23:
    mov [rsp+0x10],rdi
    mov rdi,[rsp+0x10]
    mov esi,[rsp+0x28]
    mov edx,r8d
    mov [rsp+0xC],ebx
    mov r12d,r10d
    mov [rsp+0x20],r9
    mov ebx,r8d
    call qword [rel uverbs_mlx5::rekey::<impl uverbs_mlx5::sq::Sq>::fence_behind_umr]
    mov r8d,ebx
    mov r9,[rsp+0x20]
    mov r10d,r12d
    mov ebx,[rsp+0xC]
    mov rdi,[rsp+0x10]
    mov [rdi+0x88],eax
    mov [rdi+0x8C],edx
    jmp .5
