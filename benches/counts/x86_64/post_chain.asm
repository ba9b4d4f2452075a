; rustc 1.95.0 (59807616e 2026-04-14)
    push rbp
    push r15
    push r14
    push r13
    push r12
    push rbx
    sub rsp,0x48
    mov [rsp+0x30],rdx
    mov eax,[rdi+0x38]
    cmp eax,[rdi+0x20]
    jne .22
    test rcx,rcx
    je .20
.1:
    mov r13d,[rdi+0x24]
    mov r8d,[rdi+0x28]
    mov [rsp+0xC],r8d
    mov r8,rcx
    shl r8,4
    cmp rcx,1
    mov [rsp+0x2C],eax
    mov [rsp+0x40],r8
    jne .6
    mov r14d,eax
    mov r10d,r13d
.2:
    mov rax,[rsp+0x30]
    add rax,[rsp+0x40]
    mov rcx,rax
    mov r12,[rax-8]
    mov eax,5
    cmp r12d,0x80000000
    ja .21
    mov rbx,[rcx-0x10]
    cmp r12d,1
    mov r15d,1
    sbb r15d,0xFFFFFFFF
    test r10d,r10d
    je .23
    lea r9d,[r10-1]
.3:
    or r15d,[rdi+0x2C]
    mov r11,[rdi]
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
    mov [r11+r13],r15
    mov qword [r11+r13+8],0x8000000
    test r12d,r12d
    je .4
    bswap rbx
    mov edx,0xFFFFFFFF
    mov r8,0x7FFFFFFF00000000
    or r8,rdx
    mov rdx,r12
    rol rdx,0x20
    and rdx,r8
    bswap rdx
    mov [r11+r13+0x10],rdx
    mov [r11+r13+0x18],rbx
.4:
    mov edx,[rsp+0xC]
    inc edx
    lea ebx,[r14+1]
    shl rcx,4
    mov [rax+rcx],rsi
    mov [rax+rcx+8],ebx
    mov r8d,edx
    mov [rax+rcx+0xC],edx
    test r10d,r10d
    je .24
    cmp ebx,[rsp+0x2C]
    je .20
.5:
    mov rax,[rdi+0x40]
    movzx ecx,bx
    bswap ecx
    mov [rax+4],ecx
    cmp byte [rdi+0x48],1
    jne .15
    mov rax,[rdi+0x50]
    mov [rax],r15
    jmp .19
.6:
    mov rbx,[rsp+0x30]
    lea rcx,[rbx+r8]
    add rcx,0xFFFFFFFFFFFFFFF0
    mov [rsp+0x18],rcx
    mov r12d,eax
    shl r12d,8
    mov r15d,eax
.7:
    mov r14,[rbx+8]
    cmp r14d,0x80000000
    ja .14
    mov r11,[rbx]
    cmp r14d,1
    mov ebp,2
    sbb ebp,0
    test r13d,r13d
    je .11
    lea r10d,[r13-1]
.8:
    or ebp,[rdi+0x2C]
    mov rax,[rdi]
    mov ecx,r12d
    and ecx,0xFFFF00
    or ecx,0xA
    shl rcx,0x20
    or rbp,rcx
    bswap rbp
    mov rcx,[rdi+8]
    mov r8d,[rdi+0x18]
    and r8d,r15d
    mov r9,r8
    shl r9,6
    mov [rax+r9],rbp
    mov qword [rax+r9+8],0
    test r14d,r14d
    je .9
    mov rbp,r10
    mov r10,r14
    bswap r11
    shr r10,0x20
    shl r14,0x20
    mov rdx,r13
    mov r13,r15
    mov r15,r11
    mov r11,0x7FFFFFFF00000000
    and r14,r11
    or r14,r10
    mov r10,rbp
    bswap r14
    mov [rax+r9+0x10],r14
    mov [rax+r9+0x18],r15
    mov r15,r13
    mov r13,rdx
.9:
    mov eax,[rsp+0xC]
    inc eax
    lea r14d,[r15+1]
    shl r8,4
    mov [rcx+r8],rsi
    mov [rcx+r8+8],r14d
    mov [rsp+0xC],eax
    mov [rcx+r8+0xC],eax
    test r13d,r13d
    je .12
.10:
    add rbx,0x10
    add r12d,0x100
    mov r13d,r10d
    mov r15d,r14d
    cmp rbx,[rsp+0x18]
    jne .7
    jmp .2
.11:
    mov [rsp+0x38],r11
    mov [rsp+0x10],rsi
    mov [rsp+0x20],rdi
    mov esi,r15d
    mov edx,[rsp+0xC]
    mov ecx,1
    call qword [rel uverbs_mlx5::sq::Sq::make_room]
    mov ecx,eax
    mov eax,edx
    test cl,1
    je .13
    xor r10d,r10d
    cmp eax,0xC
    mov rdi,[rsp+0x20]
    mov rsi,[rsp+0x10]
    mov r11,[rsp+0x38]
    je .8
    jmp .21
.12:
    mov [rsp+0x20],rdi
    mov rdi,[rsp+0x20]
    mov [rsp+0x10],rsi
    mov esi,r15d
    xor edx,edx
    mov r13,r10
    call qword [rel uverbs_mlx5::rekey::<impl uverbs_mlx5::sq::Sq>::wait_for_umr]
    mov r10,r13
    mov rsi,[rsp+0x10]
    mov rdi,[rsp+0x20]
    jmp .10
.13:
    mov r10d,eax
    mov rdi,[rsp+0x20]
    mov rsi,[rsp+0x10]
    mov r11,[rsp+0x38]
    jmp .8
.14:
    mov eax,5
    jmp .21
.15:
    sfence
    mov rax,[rdi+0x58]
    mov ecx,[rdi+0x4C]
    cmp r14d,[rsp+0x2C]
    jne .16
    test r12d,r12d
    je .16
    mov rdx,[r11+r13]
    mov [rax+rcx],rdx
    mov rdx,[r11+r13+8]
    mov [rax+rcx+8],rdx
    mov rdx,[r11+r13+0x10]
    mov [rax+rcx+0x10],rdx
    mov rdx,[r11+r13+0x18]
    mov [rax+rcx+0x18],rdx
    mov rdx,[r11+r13+0x20]
    mov [rax+rcx+0x20],rdx
    mov rdx,[r11+r13+0x28]
    mov [rax+rcx+0x28],rdx
    mov rdx,[r11+r13+0x30]
    mov [rax+rcx+0x30],rdx
    mov rdx,[r11+r13+0x38]
    mov [rax+rcx+0x38],rdx
    cmp byte [rdi+0x49],0
    jne .17
    jmp .18
.16:
    mov [rax+rcx],r15
.17:
    sfence
.18:
    mov eax,[rdi+0x50]
    xor [rdi+0x4C],eax
.19:
    mov [rdi+0x20],ebx
    mov [rdi+0x24],r9d
    mov [rdi+0x28],r8d
    mov [rdi+0x38],ebx
.20:
    mov eax,0xC
.21:
    add rsp,0x48
    pop rbx
    pop r12
    pop r13
    pop r14
    pop r15
    pop rbp
    ret
.22:
    mov rbx,rdi
    mov r15,rsi
    mov r14,rcx
    call qword [rel uverbs_mlx5::sq::Sq::disown]
    mov rcx,r14
    mov rsi,r15
    mov rdi,rbx
    mov eax,[rbx+0x20]
    test rcx,rcx
    jne .1
    jmp .20
.23:
    mov [rsp+0x18],r10
    mov [rsp+0x10],rsi
    mov rbp,rdi
    mov esi,r14d
    mov edx,[rsp+0xC]
    mov ecx,1
    call qword [rel uverbs_mlx5::sq::Sq::make_room]
    mov ecx,eax
    mov eax,edx
    test cl,1
    je .25
    xor r9d,r9d
    cmp eax,0xC
    mov rdi,rbp
    mov rsi,[rsp+0x10]
    mov r10,[rsp+0x18]
    je .3
    jmp .21
.24:
    mov rbp,rdi
    mov esi,r14d
    mov edx,1
    mov [rsp+0xC],r8d
    mov [rsp+0x18],r9d
    mov [rsp+0x30],r11
    call qword [rel uverbs_mlx5::rekey::<impl uverbs_mlx5::sq::Sq>::wait_for_umr]
    mov r11,[rsp+0x30]
    mov r9d,[rsp+0x18]
    mov r8d,[rsp+0xC]
    mov rdi,rbp
    cmp ebx,[rsp+0x2C]
    jne .5
    jmp .20
.25:
    mov r9d,eax
    mov rdi,rbp
    mov rsi,[rsp+0x10]
    mov r10,[rsp+0x18]
    jmp .3
