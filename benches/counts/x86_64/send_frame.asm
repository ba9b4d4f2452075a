; rustc 1.95.0 (59807616e 2026-04-14)
    push rbp
    push r15
    push r14
    push r13
    push r12
    push rbx
    sub rsp,0x28
    mov r14,r8
    mov r15,rcx
    mov r13,rdx
    mov rbx,rdi
    mov r12d,[rsi+0x38]
    cmp r12d,[rsi+0x20]
    jne .13
.1:
    mov [rsp+0x20],r13
    mov rax,[r15+0x20]
    mov edx,6
    cmp rax,[rsi+0xC8]
    jne .2
    mov edx,4
    cmp r14d,0x80000000
    jbe .3
.2:
    mov [rbx],r15
    mov [rbx+8],r14
    jmp .12
.3:
    mov eax,[rsi+0x24]
    mov r11d,[rsi+0x28]
    mov rcx,r14
    shr rcx,0x20
    and ecx,0xFFFFFFF
    mov r13d,[r15+0x18]
    mov edx,[r15+0x1C]
    mov [rsp+0x18],rdx
    imul r13,rcx
    add r13,[r15+0x10]
    cmp r14d,1
    mov ebp,2
    sbb ebp,0
    test eax,eax
    je .14
    dec eax
.4:
    or ebp,[rsi+0x2C]
    mov rcx,[rsi]
    movzx edx,r12w
    shl edx,8
    or edx,0xA
    shl rdx,0x20
    or rbp,rdx
    bswap rbp
    mov r8,[rsi+8]
    mov r9d,[rsi+0x18]
    and r9d,r12d
    mov rdx,r9
    shl rdx,6
    mov [rcx+rdx],rbp
    mov qword [rcx+rdx+8],0x8000000
    test r14d,r14d
    je .5
    bswap r13
    mov edi,r14d
    and edi,0x7FFFFFFF
    shl rdi,0x20
    add rdi,[rsp+0x18]
    bswap rdi
    mov [rcx+rdx+0x10],rdi
    mov [rcx+rdx+0x18],r13
.5:
    inc r11d
    lea edi,[r12+1]
    shl r9,4
    mov r10,[rsp+0x20]
    mov [r8+r9],r10
    mov [r8+r9+8],edi
    mov [r8+r9+0xC],r11d
    mov [rsi+0x38],edi
    cmp byte [rsi+0x3C],0
    jne .6
    mov byte [rsi+0x3C],1
    mov r8,[rsi+0x68]
    mov r9d,[r8+0x44]
    test r9d,r9d
    jne .6
    mov dword [r8+0x44],1
.6:
    mov r8,[rsi+0x10]
    and r12d,[rsi+0x18]
    shl r12,4
    mov [r8+r12],r15
    mov [r8+r12+8],r14
    mov r8,[rsi+0x40]
    movzx r9d,di
    bswap r9d
    mov [r8+4],r9d
    movzx r8d,byte [rsi+0x48]
    cmp r8b,1
    jne .7
    mov rcx,[rsi+0x50]
    mov [rcx],rbp
    jmp .11
.7:
    sfence
    mov r8,[rsi+0x58]
    mov r9d,[rsi+0x4C]
    test r14d,r14d
    je .8
    mov r10,[rcx+rdx]
    mov [r8+r9],r10
    mov r10,[rcx+rdx+8]
    mov [r8+r9+8],r10
    mov r10,[rcx+rdx+0x10]
    mov [r8+r9+0x10],r10
    mov r10,[rcx+rdx+0x18]
    mov [r8+r9+0x18],r10
    mov r10,[rcx+rdx+0x20]
    mov [r8+r9+0x20],r10
    mov r10,[rcx+rdx+0x28]
    mov [r8+r9+0x28],r10
    mov r10,[rcx+rdx+0x30]
    mov [r8+r9+0x30],r10
    mov rcx,[rcx+rdx+0x38]
    mov [r8+r9+0x38],rcx
    cmp byte [rsi+0x49],0
    jne .9
    jmp .10
.8:
    mov [r8+r9],rbp
.9:
    sfence
.10:
    mov ecx,[rsi+0x50]
    xor [rsi+0x4C],ecx
.11:
    mov [rsi+0x20],edi
    mov [rsi+0x24],eax
    mov [rsi+0x28],r11d
    mov [rsi+0x38],edi
    mov edx,0xB
.12:
    mov [rbx+0x10],edx
    mov rax,rbx
    add rsp,0x28
    pop rbx
    pop r12
    pop r13
    pop r14
    pop r15
    pop rbp
    ret
.13:
    mov r12,rsi
    mov rdi,rsi
    call qword [rel uverbs_mlx5::sq::Sq::disown]
    mov rsi,r12
    mov r12d,[r12+0x20]
    jmp .1
.14:
    lea rax,[r15+0x10]
    mov [rsp+0x10],rax
    mov [rsp+8],rsi
    mov rdi,rsi
    mov esi,r12d
    mov [rsp+4],r11d
    mov edx,r11d
    mov ecx,1
    call qword [rel uverbs_mlx5::sq::Sq::make_room]
    test al,1
    je .15
    xor eax,eax
    cmp edx,0xB
    mov rsi,[rsp+8]
    mov r11d,[rsp+4]
    jne .2
    jmp .4
.15:
    mov eax,edx
    mov rsi,[rsp+8]
    mov r11d,[rsp+4]
    jmp .4
    mov rdi,[rsp+0x10]
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
