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
    mov r12,rdx
    mov r13,rdi
    mov ebp,[rsi+0x30]
    cmp ebp,[rsi+0x24]
    jne .5
.1:
    mov [rsp+0x20],r12
    mov rax,[r15+0x20]
    mov r12d,7
    cmp rax,[rsi+0x80]
    jne .7
    mov [rsp+0x10],r13
    mov r12d,[rsi+0x28]
    mov r13d,[r15+0x18]
    mov eax,[r15+0x1C]
    mov [rsp+0x18],rax
    lea rax,[r15+0x10]
    mov [rsp+8],rax
    mov [rsp],r14
    mov rbx,r14
    shr rbx,0x20
    and ebx,0xFFFFFFF
    imul rbx,r13
    add rbx,[r15+0x10]
    test r12d,r12d
    je .6
    dec r12d
.2:
    mov rcx,[rsi]
    mov rax,[rsi+8]
    mov edi,[rsi+0x20]
    mov r14d,[rsi+0x18]
    and r14d,ebp
    mov rdx,r14
    shl r13,0x20
    add r13,[rsp+0x18]
    bswap rbx
    bswap r13
    imul rdx,rdi
    mov [rcx+rdx],r13
    mov [rcx+rdx+8],rbx
    cmp rdi,0x10
    jbe .3
    add rcx,rdx
    movups xmm0,[rel .rodata]
    movups [rcx+0x10],xmm0
.3:
    inc ebp
    shl r14,4
    mov rcx,[rsp+0x20]
    mov [rax+r14],rcx
    mov [rax+r14+8],ebp
    mov [rsi+0x30],ebp
    cmp byte [rsi+0x34],0
    mov r13,[rsp]
    je .9
.4:
    mov rax,[rsi+0x10]
    mov [rax+r14],r15
    mov [rax+r14+8],r13
    mov rax,[rsi+0x38]
    movzx ecx,bp
    bswap ecx
    mov [rax],ecx
    mov [rsi+0x24],ebp
    mov [rsi+0x28],r12d
    mov [rsi+0x30],ebp
    mov eax,0x11
    mov r13,[rsp+0x10]
    jmp .8
.5:
    mov rbx,rsi
    mov rdi,rsi
    call qword [rel uverbs_mlx5::recv::queue::Rq::disown]
    mov rsi,rbx
    mov ebp,[rbx+0x24]
    jmp .1
.6:
    mov r14,rsi
    mov rdi,rsi
    mov esi,ebp
    call qword [rel uverbs_mlx5::recv::queue::Rq::make_room]
    mov r12d,edx
    test al,1
    je .10
    mov eax,0x11
    cmp r12d,0x11
    mov r14,[rsp]
    mov r13,[rsp+0x10]
    je .8
.7:
    mov [r13],r15
    mov [r13+8],r14
    mov eax,r12d
.8:
    mov [r13+0x10],eax
    mov rax,r13
    add rsp,0x28
    pop rbx
    pop r12
    pop r13
    pop r14
    pop r15
    pop rbp
    ret
.9:
    mov byte [rsi+0x34],1
    mov rdi,[rsi+0x40]
    sub rdi,0xFFFFFFFFFFFFFF80
    mov rbx,rsi
    call qword [rel uverbs_core::queues::slots::SlotTable::will_own]
    mov rsi,rbx
    jmp .4
.10:
    mov rsi,r14
    jmp .2
    jmp .11
.11:
    mov r14,rax
    jmp .12
    mov [rsp],r14
    mov r14,rax
    add r15,0x10
    mov [rsp+8],r15
.12:
    mov rdi,[rsp+8]
    mov rsi,[rsp]
    call qword [rel uverbs_core::memory::registered::give_back]
    mov rdi,r14
    call _Unwind_Resume
