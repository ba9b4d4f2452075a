; rustc 1.95.0 (59807616e 2026-04-14)
    push rbp
    push r15
    push r14
    push r13
    push r12
    push rbx
    sub rsp,0x28
    mov ebx,[rdi+0x38]
    cmp ebx,[rdi+0x20]
    jne .11
    mov r13,[rdx+8]
    mov eax,5
    cmp r13d,0x80000000
    ja .10
.1:
    mov r12d,[rdi+0x24]
    mov r9d,[rdi+0x28]
    mov r11d,[rdi+0x88]
    mov eax,[rdi+0x8C]
    mov [rsp+0xC],eax
    mov r10,[rdx]
    cmp r13d,1
    mov r15d,2
    sbb r15d,0
    test r12d,r12d
    je .12
    dec r12d
.2:
    or r15d,[rdi+0x2C]
    mov r14,[rdi]
    movzx eax,bx
    shl eax,8
    or eax,0xA
    shl rax,0x20
    or r15,rax
    bswap r15
    mov rax,[rdi+8]
    mov ecx,[rdi+0x18]
    and ecx,ebx
    mov rbp,rcx
    shl rbp,6
    mov [r14+rbp],r15
    mov qword [r14+rbp+8],0x8000000
    test r13d,r13d
    je .3
    bswap r10
    mov rdx,r13
    rol rdx,0x20
    mov r8,0x7FFFFFFFFFFFFFFF
    and r8,rdx
    bswap r8
    mov [r14+rbp+0x10],r8
    mov [r14+rbp+0x18],r10
.3:
    inc r9d
    inc ebx
    shl rcx,4
    mov [rax+rcx],rsi
    mov [rax+rcx+8],ebx
    mov [rax+rcx+0xC],r9d
    test r11d,r11d
    jne .13
.4:
    mov rax,[rdi+0x40]
    movzx ecx,bx
    bswap ecx
    mov [rax+4],ecx
    movzx eax,byte [rdi+0x48]
    cmp al,1
    jne .5
    mov rax,[rdi+0x50]
    mov [rax],r15
    jmp .9
.5:
    sfence
    mov rax,[rdi+0x58]
    mov ecx,[rdi+0x4C]
    test r13d,r13d
    je .6
    mov rdx,[r14+rbp]
    mov [rax+rcx],rdx
    mov rdx,[r14+rbp+8]
    mov [rax+rcx+8],rdx
    mov rdx,[r14+rbp+0x10]
    mov [rax+rcx+0x10],rdx
    mov rdx,[r14+rbp+0x18]
    mov [rax+rcx+0x18],rdx
    mov rdx,[r14+rbp+0x20]
    mov [rax+rcx+0x20],rdx
    mov rdx,[r14+rbp+0x28]
    mov [rax+rcx+0x28],rdx
    mov rdx,[r14+rbp+0x30]
    mov [rax+rcx+0x30],rdx
    mov rdx,[r14+rbp+0x38]
    mov [rax+rcx+0x38],rdx
    cmp byte [rdi+0x49],0
    jne .7
    jmp .8
.6:
    mov [rax+rcx],r15
.7:
    sfence
.8:
    mov eax,[rdi+0x50]
    xor [rdi+0x4C],eax
.9:
    mov [rdi+0x20],ebx
    mov [rdi+0x24],r12d
    mov [rdi+0x28],r9d
    mov [rdi+0x38],ebx
    mov eax,0xC
.10:
    add rsp,0x28
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
    call qword [rel uverbs_mlx5::sq::Sq::disown]
    mov rdx,r15
    mov rsi,r14
    mov rdi,rbx
    mov ebx,[rbx+0x20]
    mov r13,[rdx+8]
    mov eax,5
    cmp r13d,0x80000000
    jbe .1
    jmp .10
.12:
    mov [rsp+0x20],r10
    mov [rsp+0x1C],r11d
    mov [rsp+0x10],rsi
    mov rbp,rdi
    mov esi,ebx
    mov r14d,r9d
    mov edx,r9d
    mov ecx,1
    call qword [rel uverbs_mlx5::sq::Sq::make_room]
    mov ecx,eax
    mov eax,edx
    test cl,1
    je .14
    xor r12d,r12d
    cmp eax,0xC
    mov rdi,rbp
    mov rsi,[rsp+0x10]
    mov r9d,r14d
    mov r11d,[rsp+0x1C]
    mov r10,[rsp+0x20]
    je .2
    jmp .10
.13:
    mov [rsp+0x10],rdi
    mov rdi,[rsp+0x10]
    mov esi,[rsp+0xC]
    mov edx,ebx
    mov [rsp+0xC],r9d
    call qword [rel uverbs_mlx5::rekey::<impl uverbs_mlx5::sq::Sq>::fence_behind_umr]
    mov r9d,[rsp+0xC]
    mov rdi,[rsp+0x10]
    mov [rdi+0x88],eax
    mov [rdi+0x8C],edx
    jmp .4
.14:
    mov r12d,eax
    mov rdi,rbp
    mov rsi,[rsp+0x10]
    mov r9d,r14d
    mov r11d,[rsp+0x1C]
    mov r10,[rsp+0x20]
    jmp .2
