; rustc 1.95.0 (59807616e 2026-04-14)
    push rbp
    push r15
    push r14
    push r13
    push r12
    push rbx
    sub rsp,0x38
    mov [rsp+8],r8
    mov r15,rcx
    mov r13,rdx
    mov rbx,rdi
    mov r12d,[rsi+0x38]
    cmp r12d,[rsi+0x20]
    jne .14
.1:
    mov [rsp+0x18],r13
    mov rax,[r15+0x20]
    mov edx,7
    cmp rax,[rsi+0xC8]
    jne .2
    mov edx,5
    cmp dword [rsp+8],0x80000000
    jbe .3
.2:
    mov [rbx],r15
    mov rax,[rsp+8]
    mov [rbx+8],rax
    jmp .13
.3:
    mov edi,[rsi+0x24]
    mov r8d,[rsi+0x28]
    mov eax,[rsi+0x88]
    mov [rsp+4],eax
    mov eax,[rsi+0x8C]
    mov [rsp+0x24],eax
    mov rcx,[rsp+8]
    mov rax,rcx
    shr rax,0x20
    and eax,0xFFFFFFF
    mov r14d,[r15+0x18]
    mov edx,[r15+0x1C]
    mov [rsp+0x30],rdx
    imul r14,rax
    add r14,[r15+0x10]
    cmp ecx,1
    mov r13d,2
    sbb r13d,0
    test edi,edi
    je .15
    dec edi
.4:
    or r13d,[rsi+0x2C]
    mov r9,[rsi]
    movzx eax,r12w
    shl eax,8
    or eax,0xA
    shl rax,0x20
    or r13,rax
    bswap r13
    mov rax,[rsi+8]
    mov ecx,[rsi+0x18]
    and ecx,r12d
    mov rbp,rcx
    shl rbp,6
    mov [r9+rbp],r13
    mov qword [r9+rbp+8],0x8000000
    mov rdx,[rsp+8]
    test edx,edx
    je .5
    bswap r14
    and edx,0x7FFFFFFF
    shl rdx,0x20
    add rdx,[rsp+0x30]
    bswap rdx
    mov [r9+rbp+0x10],rdx
    mov [r9+rbp+0x18],r14
.5:
    inc r8d
    lea r10d,[r12+1]
    shl rcx,4
    mov rdx,[rsp+0x18]
    mov [rax+rcx],rdx
    mov [rax+rcx+8],r10d
    mov [rax+rcx+0xC],r8d
    mov [rsi+0x38],r10d
    cmp byte [rsi+0x3C],0
    jne .6
    mov byte [rsi+0x3C],1
    mov rax,[rsi+0x68]
    mov ecx,[rax+0x44]
    test ecx,ecx
    jne .6
    mov dword [rax+0x44],1
.6:
    mov rax,[rsi+0x10]
    and r12d,[rsi+0x18]
    shl r12,4
    mov [rax+r12],r15
    mov r15,[rsp+8]
    mov [rax+r12+8],r15
    cmp dword [rsp+4],0
    jne .16
.7:
    mov rax,[rsi+0x40]
    movzx ecx,r10w
    bswap ecx
    mov [rax+4],ecx
    movzx eax,byte [rsi+0x48]
    cmp al,1
    jne .8
    mov rax,[rsi+0x50]
    mov [rax],r13
    jmp .12
.8:
    sfence
    mov rax,[rsi+0x58]
    mov ecx,[rsi+0x4C]
    test r15d,r15d
    je .9
    mov rdx,[r9+rbp]
    mov [rax+rcx],rdx
    mov rdx,[r9+rbp+8]
    mov [rax+rcx+8],rdx
    mov rdx,[r9+rbp+0x10]
    mov [rax+rcx+0x10],rdx
    mov rdx,[r9+rbp+0x18]
    mov [rax+rcx+0x18],rdx
    mov rdx,[r9+rbp+0x20]
    mov [rax+rcx+0x20],rdx
    mov rdx,[r9+rbp+0x28]
    mov [rax+rcx+0x28],rdx
    mov rdx,[r9+rbp+0x30]
    mov [rax+rcx+0x30],rdx
    mov rdx,[r9+rbp+0x38]
    mov [rax+rcx+0x38],rdx
    cmp byte [rsi+0x49],0
    jne .10
    jmp .11
.9:
    mov [rax+rcx],r13
.10:
    sfence
.11:
    mov eax,[rsi+0x50]
    xor [rsi+0x4C],eax
.12:
    mov [rsi+0x20],r10d
    mov [rsi+0x24],edi
    mov [rsi+0x28],r8d
    mov [rsi+0x38],r10d
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
    lea rax,[r15+0x10]
    mov [rsp+0x28],rax
    mov [rsp+0x10],rsi
    mov rdi,rsi
    mov esi,r12d
    mov ebp,r8d
    mov edx,r8d
    mov ecx,1
    call qword [rel uverbs_mlx5::sq::Sq::make_room]
    test al,1
    je .17
    xor edi,edi
    cmp edx,0xC
    mov rsi,[rsp+0x10]
    mov r8d,ebp
    jne .2
    jmp .4
.16:
    mov [rsp+0x18],edi
    mov rdi,rsi
    mov [rsp+0x10],rsi
    mov esi,[rsp+0x24]
    mov edx,r10d
    mov r12d,r8d
    mov r14,r9
    mov [rsp+4],r10d
    call qword [rel uverbs_mlx5::rekey::<impl uverbs_mlx5::sq::Sq>::fence_behind_umr]
    mov r10d,[rsp+4]
    mov r9,r14
    mov edi,[rsp+0x18]
    mov r8d,r12d
    mov rsi,[rsp+0x10]
    mov [rsi+0x88],eax
    mov [rsi+0x8C],edx
    jmp .7
.17:
    mov edi,edx
    mov rsi,[rsp+0x10]
    mov r8d,ebp
    jmp .4
    mov rdi,[rsp+0x28]
    mov rbx,rax
    mov rsi,[rsp+8]
    call qword [rel uverbs_core::memory::registered::give_back]
    mov rdi,rbx
    call _Unwind_Resume
    mov rbx,rax
    add r15,0x10
    mov rdi,r15
    mov rsi,[rsp+8]
    call qword [rel uverbs_core::memory::registered::give_back]
    mov rdi,rbx
    call _Unwind_Resume
