; rustc 1.95.0 (59807616e 2026-04-14)
    push rbp
    push r15
    push r14
    push r13
    push r12
    push rbx
    sub rsp,0x58
    mov rbx,rdi
    mov rax,[rdi+0x80]
    mov eax,[rax+0x88]
    mov ebp,0x10
    cmp eax,0xF
    jbe .30
.1:
    mov qword [rsp+0x18],0
    mov [rsp+0x10],rsi
.2:
    test ebp,0x7FFFFFFF
    je .5
.3:
    mov r13,[rbx]
    movzx r14d,byte [r13+0x3F]
    movzx eax,byte [rbx+0x1C]
    xor al,r14b
    ror al,1
    cmp al,0x28
    jae .6
    mov eax,[r13+0x20]
    shr eax,8
    cmp eax,[rbx+0x20]
    je .4
    mov rcx,[rbx+0x60]
    mov edx,eax
    bswap edx
    shr edx,8
    cmp rcx,rdx
    jbe .8
    mov rsi,[rbx+0x58]
    shl edx,5
    mov rdx,[rsi+rdx]
    test rdx,rdx
    je .8
    add rdx,0x40
    mov [rbx+0x20],eax
    mov [rbx+0x28],rdx
    cmp rcx,0x101
    jae .23
.4:
    movzx r14d,r14b
    shr r14d,4
    mov r15,[rbx+0x28]
    je .7
    movzx eax,word [r13+0x3C]
    rol ax,8
    mov r12d,[r15+0x40]
    cmp ax,r12w
    jne .8
    lea rdi,[r15+0x40]
    mov rcx,[r15+0x50]
    mov eax,[r15+0x60]
    and eax,r12d
    mov rdx,rax
    shl rdx,4
    mov rcx,[rcx+rdx]
    mov [rsp+8],rcx
    mov ecx,[r15+0x44]
    test ecx,ecx
    jne .11
    inc r12d
    mov [rdi],r12d
    xor edi,edi
    mov rdx,[rsp]
    mov r12,rdx
    jmp .18
.5:
    test ebp,ebp
    je .28
    mov rdi,rbx
    call uverbs::cq::CompletionQueue<P>::go_on
    mov ebp,eax
    test eax,eax
    jne .3
    jmp .28
.6:
    jl .28
    jmp .8
.7:
    movzx eax,word [r13+0x3C]
    rol ax,8
    mov r14d,[r15]
    sub eax,r14d
    movzx ecx,ax
    add r14d,ecx
    mov rdx,[r15+0x10]
    mov edi,[r15+0x20]
    mov eax,r14d
    and eax,edi
    mov rsi,rax
    shl rsi,4
    mov r12d,[rdx+rsi+8]
    mov r8d,r14d
    not r8d
    add r8d,r12d
    cmp r8d,edi
    jbe .9
.8:
    lea rdi,[rsp+0x28]
    mov rsi,rbx
    call qword [rel uverbs_mlx5::cq::Cq::next_odd]
    cmp byte [rsp+0x28],0
    je .28
    mov r13,[rsp+0x30]
    mov r14,[rsp+0x38]
    mov rdi,[rsp+0x40]
    mov r12,[rsp+0x48]
    mov rax,[rsp+0x50]
    jmp .20
.9:
    add rdx,rsi
    mov rdx,[rdx]
    mov [rsp+8],rdx
    mov edx,[r15+4]
    test edx,edx
    je .14
    dec edx
    or edx,ecx
    jne .26
.10:
    mov rcx,[r15+0x18]
    shl rax,4
    mov rdi,[rcx+rax]
    mov rdx,[rcx+rax+8]
    mov [rsp+0x20],rdx
    mov qword [rcx+rax],0
    jmp .15
.11:
    cmp ecx,1
    jne .25
.12:
    mov rcx,[r15+0x58]
    shl rax,4
    mov rdi,[rcx+rax]
    mov rsi,[rcx+rax+8]
    mov qword [rcx+rax],0
    inc r12d
    mov [r15+0x40],r12d
    test rdi,rdi
    je .17
    xor eax,eax
    cmp r14b,1
    je .13
    mov eax,[r13+0x2C]
    bswap eax
    cmp eax,[rdi+0x18]
    ja .27
.13:
    mov rcx,rsi
    mov rdx,0xFFFFFFFF00000000
    and rcx,rdx
    mov rdx,rsi
    mov r12d,eax
    or r12,rcx
    jmp .18
.14:
    xor edi,edi
.15:
    mov [r15],r12d
    inc dword [rbx+0x10]
    mov eax,[rbx+0x18]
    add rax,[rbx]
    mov [rbx],rax
    cmp rax,[rbx+8]
    jne .16
    mov rax,[rbx+0x38]
    mov [rbx],rax
    xor byte [rbx+0x1C],1
.16:
    dec ebp
    inc qword [rsp+0x18]
    mov rax,[rsp+0x10]
    mov rcx,[rsp+8]
    add [rax],rcx
    mov r12,[rsp+0x20]
    mov eax,[r13+0x38]
    test rdi,rdi
    jne .22
    jmp .2
.17:
    xor edi,edi
.18:
    inc dword [rbx+0x10]
    mov eax,[rbx+0x18]
    add rax,[rbx]
    mov [rbx],rax
    cmp rax,[rbx+8]
    mov [rsp],rdx
    jne .19
    mov rax,[rbx+0x38]
    mov [rbx],rax
    xor byte [rbx+0x1C],1
.19:
    mov rax,[rsp+8]
.20:
    dec ebp
    mov rdx,[rsp+0x10]
    add [rdx],rax
    inc qword [rsp+0x18]
    movzx eax,r14b
    lea ecx,[rax-1]
    cmp ecx,4
    jae .21
    mov eax,[r13+0x2C]
    bswap eax
    add [rdx+8],rax
    test rdi,rdi
    jne .22
    jmp .2
.21:
    test eax,eax
    jne .24
    mov eax,[r13+0x38]
    test rdi,rdi
    je .2
.22:
    add rdi,0x10
    mov rsi,r12
    call qword [rel uverbs_core::memory::registered::give_back]
    jmp .2
.23:
    mov rdi,rbx
    call qword [rel uverbs_mlx5::cq::Cq::look_ahead]
    jmp .4
.24:
    mov r15,rdi
    mov rdi,r13
    mov rsi,r14
    call qword [rel uverbs_mlx5::cqe::Cqe::failure]
    mov rsi,[rsp+0x10]
    inc qword [rsi+0x10]
    mov rdi,r15
    test rdi,rdi
    jne .22
    jmp .2
.25:
    mov esi,r12d
    call qword [rel uverbs_core::queues::slots::SlotTable::pass_over]
    mov eax,[r15+0x60]
    and eax,r12d
    jmp .12
.26:
    mov rdi,r15
    mov esi,r14d
    call qword [rel uverbs_core::queues::slots::SlotTable::pass_over]
    and r14d,[r15+0x20]
    mov rax,r14
    jmp .10
.27:
    mov r12,rdi
    lea r15,[rdi+0x10]
    mov rdi,r15
    mov [rsp],rsi
    mov edx,eax
    call qword [rel uverbs_core::memory::registered::Registered::spread]
    mov rsi,[rsp]
    mov rdi,r12
    jmp .13
.28:
    mov eax,[rbx+0x10]
    cmp eax,[rbx+0x14]
    je .29
    mov [rbx+0x14],eax
    mov rcx,[rbx+0x30]
    and eax,0xFFFFFF
    bswap eax
    mov [rcx],eax
.29:
    mov rax,[rsp+0x18]
    add rsp,0x58
    pop rbx
    pop r12
    pop r13
    pop r14
    pop r15
    pop rbp
    ret
.30:
    mov r14,rsi
    mov esi,0x10
    mov rdi,rbx
    call uverbs::cq::CompletionQueue<P>::begin
    mov rsi,r14
    mov ebp,eax
    jmp .1
    mov r14,rax
    test r15,r15
    je .32
    mov rdi,r15
    add rdi,0x10
    mov rsi,r12
    jmp .31
    mov r14,rax
    mov rdi,r15
    mov rsi,[rsp]
.31:
    call qword [rel uverbs_core::memory::registered::give_back]
    jmp .32
    mov r14,rax
.32:
    mov eax,[rbx+0x10]
    cmp eax,[rbx+0x14]
    je .33
    mov [rbx+0x14],eax
    mov rcx,[rbx+0x30]
    and eax,0xFFFFFF
    bswap eax
    mov [rcx],eax
.33:
    mov rdi,r14
    call _Unwind_Resume
