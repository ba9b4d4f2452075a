; rustc 1.95.0 (59807616e 2026-04-14)
    push rbp
    push r15
    push r14
    push r13
    push r12
    push rbx
    sub rsp,0x18
    mov r12,r8
    mov r15,rcx
    mov r13,rdx
    mov r14,rdi
    mov ebp,[rsi+0x30]
    cmp ebp,[rsi+0x24]
    jne .5
    mov rax,[r15+0x20]
    mov edx,7
    cmp rax,[rsi+0x80]
    jne .6
.1:
    mov [rsp+0x10],r13
    mov edx,[rsi+0x28]
    mov r13,[r15+0x18]
    mov rax,r13
    shr rax,0x20
    mov rbx,r12
    shr rbx,0x20
    and ebx,0xFFFFFFF
    imul rbx,rax
    add rbx,[r15+0x10]
    test edx,edx
    je .8
    dec edx
.2:
    mov rdi,[rsi]
    mov rcx,[rsi+8]
    mov r9d,[rsi+0x20]
    mov eax,[rsi+0x18]
    and eax,ebp
    mov r8,rax
    bswap rbx
    bswap r13
    imul r8,r9
    mov [rdi+r8],r13
    mov [rdi+r8+8],rbx
    cmp r9,0x10
    jbe .3
    add rdi,r8
    movups xmm0,[rel .rodata]
    movups [rdi+0x10],xmm0
.3:
    inc ebp
    shl rax,4
    mov rdi,[rsp+0x10]
    mov [rcx+rax],rdi
    mov [rcx+rax+8],ebp
    mov [rsi+0x30],ebp
    cmp byte [rsi+0x34],0
    jne .4
    mov byte [rsi+0x34],1
    mov rcx,[rsi+0x40]
    mov edi,[rcx+0xC8]
    test edi,edi
    jne .4
    mov dword [rcx+0xC8],1
.4:
    mov rcx,[rsi+0x10]
    mov [rcx+rax],r15
    mov [rcx+rax+8],r12
    mov rax,[rsi+0x38]
    movzx ecx,bp
    bswap ecx
    mov [rax],ecx
    mov [rsi+0x24],ebp
    mov [rsi+0x28],edx
    mov [rsi+0x30],ebp
    mov eax,0x11
    jmp .7
.5:
    mov rbx,rsi
    mov rdi,rsi
    call qword [rel uverbs_mlx5::recv::queue::Rq::disown]
    mov rsi,rbx
    mov ebp,[rbx+0x24]
    mov rax,[r15+0x20]
    mov edx,7
    cmp rax,[rsi+0x80]
    je .1
.6:
    mov [r14],r15
    mov [r14+8],r12
    mov eax,edx
.7:
    mov [r14+0x10],eax
    mov rax,r14
    add rsp,0x18
    pop rbx
    pop r12
    pop r13
    pop r14
    pop r15
    pop rbp
    ret
.8:
    lea rax,[r15+0x10]
    mov [rsp],rax
    mov [rsp+8],rsi
    mov rdi,rsi
    mov esi,ebp
    call qword [rel uverbs_mlx5::recv::queue::Rq::make_room]
    test al,1
    je .9
    mov eax,0x11
    cmp edx,0x11
    jne .6
    jmp .7
.9:
    mov rsi,[rsp+8]
    jmp .2
    mov rdi,[rsp]
    mov r14,rax
    mov rsi,r12
    call qword [rel uverbs_core::memory::registered::give_back]
    mov rdi,r14
    call _Unwind_Resume
    mov r14,rax
    add r15,0x10
    mov rdi,r15
    mov rsi,r12
    call qword [rel uverbs_core::memory::registered::give_back]
    mov rdi,r14
    call _Unwind_Resume
