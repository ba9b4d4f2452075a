; rustc 1.95.0 (59807616e 2026-04-14)
    push rbp
    push r15
    push r14
    push r13
    push r12
    push rbx
    sub rsp,0x38
    mov [rsp+0x10],r8
    mov r15,rcx
    mov r13,rdx
    mov rbx,rdi
    mov r12d,[rsi+0x38]
    cmp r12d,[rsi+0x20]
    jne .14
.1:
    mov [rsp+0x20],r13
    mov rax,[r15+0x20]
    mov edx,7
    cmp rax,[rsi+0xC8]
    jne .2
    mov edx,5
    cmp dword [rsp+0x10],0x80000000
    jbe .3
.2:
    mov [rbx],r15
    mov rax,[rsp+0x10]
    mov [rbx+8],rax
    jmp .13
.3:
    mov r8d,[rsi+0x24]
    mov edx,[rsi+0x28]
    mov rcx,[rsp+0x10]
    mov rax,rcx
    shr rax,0x20
    and eax,0xFFFFFFF
    lea rdi,[r15+0x10]
    mov [rsp+0x28],rdi
    mov r14d,[r15+0x18]
    mov edi,[r15+0x1C]
    mov [rsp+0x18],rdi
    imul r14,rax
    add r14,[r15+0x10]
    cmp ecx,1
    mov ebp,2
    sbb ebp,0
    test r8d,r8d
    mov [rsp+0xC],edx
    mov [rsp+0x30],r8
    je .15
    lea eax,[r8-1]
    mov [rsp+8],eax
.4:
    or ebp,[rsi+0x2C]
    mov rdi,[rsi]
    movzx eax,r12w
    shl eax,8
    or eax,0xA
    shl rax,0x20
    or rbp,rax
    bswap rbp
    mov rax,[rsi+8]
    mov ecx,[rsi+0x18]
    and ecx,r12d
    mov r13,rcx
    shl r13,6
    mov [rdi+r13],rbp
    mov qword [rdi+r13+8],0x8000000
    mov rdx,[rsp+0x10]
    test edx,edx
    je .5
    bswap r14
    and edx,0x7FFFFFFF
    shl rdx,0x20
    add rdx,[rsp+0x18]
    bswap rdx
    mov [rdi+r13+0x10],rdx
    mov [rdi+r13+0x18],r14
.5:
    mov [rsp+0x18],rdi
    mov edx,[rsp+0xC]
    inc edx
    lea r14d,[r12+1]
    shl rcx,4
    mov rdi,[rsp+0x20]
    mov [rax+rcx],rdi
    mov [rax+rcx+8],r14d
    mov [rsp+0xC],edx
    mov [rax+rcx+0xC],edx
    cmp dword [rsp+0x30],0
    je .16
.6:
    mov edi,r14d
    mov [rsi+0x38],r14d
    cmp byte [rsi+0x3C],0
    jne .7
    mov byte [rsi+0x3C],1
    mov rax,[rsi+0x68]
    mov ecx,[rax+0x44]
    test ecx,ecx
    jne .7
    mov dword [rax+0x44],1
.7:
    mov rax,[rsi+0x10]
    and r12d,[rsi+0x18]
    shl r12,4
    mov [rax+r12],r15
    mov rdx,[rsp+0x10]
    mov [rax+r12+8],rdx
    mov rax,[rsi+0x40]
    movzx ecx,di
    bswap ecx
    mov [rax+4],ecx
    movzx eax,byte [rsi+0x48]
    cmp al,1
    mov r14,[rsp+0x18]
    jne .8
    mov rax,[rsi+0x50]
    mov [rax],rbp
    mov r14d,[rsp+0xC]
    mov ecx,[rsp+8]
    jmp .12
.8:
    sfence
    mov rax,[rsi+0x58]
    mov ecx,[rsi+0x4C]
    test edx,edx
    je .9
    mov rdx,[r14+r13]
    mov [rax+rcx],rdx
    mov rdx,[r14+r13+8]
    mov [rax+rcx+8],rdx
    mov rdx,[r14+r13+0x10]
    mov [rax+rcx+0x10],rdx
    mov rdx,[r14+r13+0x18]
    mov [rax+rcx+0x18],rdx
    mov rdx,[r14+r13+0x20]
    mov [rax+rcx+0x20],rdx
    mov rdx,[r14+r13+0x28]
    mov [rax+rcx+0x28],rdx
    mov rdx,[r14+r13+0x30]
    mov [rax+rcx+0x30],rdx
    mov rdx,[r14+r13+0x38]
    mov [rax+rcx+0x38],rdx
    cmp byte [rsi+0x49],0
    mov r14d,[rsp+0xC]
    mov ecx,[rsp+8]
    jne .10
    jmp .11
.9:
    mov [rax+rcx],rbp
    mov r14d,[rsp+0xC]
    mov ecx,[rsp+8]
.10:
    sfence
.11:
    mov eax,[rsi+0x50]
    xor [rsi+0x4C],eax
.12:
    mov [rsi+0x20],edi
    mov [rsi+0x24],ecx
    mov [rsi+0x28],r14d
    mov [rsi+0x38],edi
    mov edx,0xC
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
    mov r14,rsi
    mov rdi,rsi
    call qword [rel uverbs_mlx5::sq::Sq::disown]
    mov rsi,r14
    mov r12d,[r14+0x20]
    jmp .1
.15:
    mov rdi,rsi
    mov r13,rsi
    mov esi,r12d
    mov ecx,1
    call qword [rel uverbs_mlx5::sq::Sq::make_room]
    mov rsi,r13
    test al,1
    je .17
    mov dword [rsp+8],0
    cmp edx,0xC
    jne .2
    jmp .4
.16:
    mov rdi,rsi
    mov [rsp+0x20],rsi
    mov esi,r12d
    mov edx,1
    call qword [rel uverbs_mlx5::rekey::<impl uverbs_mlx5::sq::Sq>::wait_for_umr]
    mov rsi,[rsp+0x20]
    jmp .6
.17:
    mov [rsp+8],edx
    jmp .4
    mov rbx,rax
    jmp .18
    mov rbx,rax
    add r15,0x10
    mov [rsp+0x28],r15
.18:
    mov rdi,[rsp+0x28]
    mov rsi,[rsp+0x10]
    call qword [rel uverbs_core::memory::registered::give_back]
    mov rdi,rbx
    call _Unwind_Resume
