; rustc 1.95.0 (59807616e 2026-04-14)
    push rbp
    push r15
    push r14
    push r13
    push r12
    push rbx
    sub rsp,0x18
    mov r14d,[rdi+0x38]
    cmp r14d,[rdi+0x20]
    jne .11
    mov r12,[rdx+8]
    mov eax,5
    cmp r12d,0x80000000
    ja .10
.1:
    mov r11d,[rdi+0x24]
    mov r9d,[rdi+0x28]
    mov rbp,[rdx]
    cmp r12d,1
    mov r13d,2
    sbb r13d,0
    test r11d,r11d
    je .12
    lea r10d,[r11-1]
.2:
    or r13d,[rdi+0x2C]
    mov r15,[rdi]
    movzx eax,r14w
    shl eax,8
    or eax,0xA
    shl rax,0x20
    or r13,rax
    bswap r13
    mov rax,[rdi+8]
    mov ecx,[rdi+0x18]
    and ecx,r14d
    mov rbx,rcx
    shl rbx,6
    mov [r15+rbx],r13
    mov qword [r15+rbx+8],0x8000000
    test r12d,r12d
    je .3
    bswap rbp
    mov rdx,r12
    rol rdx,0x20
    mov r8,0x7FFFFFFFFFFFFFFF
    and r8,rdx
    bswap r8
    mov [r15+rbx+0x10],r8
    mov [r15+rbx+0x18],rbp
.3:
    inc r9d
    lea ebp,[r14+1]
    shl rcx,4
    mov [rax+rcx],rsi
    mov [rax+rcx+8],ebp
    mov [rax+rcx+0xC],r9d
    test r11d,r11d
    je .13
.4:
    mov rax,[rdi+0x40]
    movzx ecx,bp
    bswap ecx
    mov [rax+4],ecx
    movzx eax,byte [rdi+0x48]
    cmp al,1
    jne .5
    mov rax,[rdi+0x50]
    mov [rax],r13
    jmp .9
.5:
    sfence
    mov rax,[rdi+0x58]
    mov ecx,[rdi+0x4C]
    test r12d,r12d
    je .6
    mov rdx,[r15+rbx]
    mov [rax+rcx],rdx
    mov rdx,[r15+rbx+8]
    mov [rax+rcx+8],rdx
    mov rdx,[r15+rbx+0x10]
    mov [rax+rcx+0x10],rdx
    mov rdx,[r15+rbx+0x18]
    mov [rax+rcx+0x18],rdx
    mov rdx,[r15+rbx+0x20]
    mov [rax+rcx+0x20],rdx
    mov rdx,[r15+rbx+0x28]
    mov [rax+rcx+0x28],rdx
    mov rdx,[r15+rbx+0x30]
    mov [rax+rcx+0x30],rdx
    mov rdx,[r15+rbx+0x38]
    mov [rax+rcx+0x38],rdx
    cmp byte [rdi+0x49],0
    jne .7
    jmp .8
.6:
    mov [rax+rcx],r13
.7:
    sfence
.8:
    mov eax,[rdi+0x50]
    xor [rdi+0x4C],eax
.9:
    mov [rdi+0x20],ebp
    mov [rdi+0x24],r10d
    mov [rdi+0x28],r9d
    mov [rdi+0x38],ebp
    mov eax,0xC
.10:
    add rsp,0x18
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
    mov r14d,[rbx+0x20]
    mov r12,[rdx+8]
    mov eax,5
    cmp r12d,0x80000000
    jbe .1
    jmp .10
.12:
    mov [rsp+0x10],rbp
    mov [rsp+8],r11
    mov rbx,rsi
    mov r15,rdi
    mov esi,r14d
    mov ebp,r9d
    mov edx,r9d
    mov ecx,1
    call qword [rel uverbs_mlx5::sq::Sq::make_room]
    mov ecx,eax
    mov eax,edx
    test cl,1
    je .14
    xor r10d,r10d
    cmp eax,0xC
    mov rdi,r15
    mov rsi,rbx
    mov r9d,ebp
    mov r11,[rsp+8]
    mov rbp,[rsp+0x10]
    je .2
    jmp .10
.13:
    mov [rsp+8],rdi
    mov rdi,[rsp+8]
    mov esi,r14d
    mov edx,1
    mov r14d,r9d
    mov [rsp+0x10],r10d
    call qword [rel uverbs_mlx5::rekey::<impl uverbs_mlx5::sq::Sq>::wait_for_umr]
    mov r10d,[rsp+0x10]
    mov r9d,r14d
    mov rdi,[rsp+8]
    jmp .4
.14:
    mov r10d,eax
    mov rdi,r15
    mov rsi,rbx
    mov r9d,ebp
    mov r11,[rsp+8]
    mov rbp,[rsp+0x10]
    jmp .2
