; rustc 1.95.0 (59807616e 2026-04-14)
    push rbp
    push r15
    push r14
    push r13
    push r12
    push rbx
    sub rsp,0x68
    mov rbx,rdi
    mov rax,[rdi+0x80]
    mov eax,[rax+0x9C]
    mov ebp,0x10
    cmp eax,0xF
    jbe .33
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
    prefetcht0 [r13+0x200]
    mov eax,[r13+0x20]
    shr eax,8
    cmp eax,[rbx+0x20]
    je .4
    mov rcx,[rbx+0x60]
    mov edx,eax
    bswap edx
    shr edx,8
    cmp rcx,rdx
    jbe .10
    mov rsi,[rbx+0x58]
    shl edx,5
    mov rdx,[rsi+rdx]
    test rdx,rdx
    je .10
    add rdx,0x40
    mov [rbx+0x20],eax
    mov [rbx+0x28],rdx
    cmp rcx,0x101
    jae .26
.4:
    movzx r14d,r14b
    shr r14d,4
    mov r15,[rbx+0x28]
    je .7
    movzx eax,word [r13+0x3C]
    rol ax,8
    mov r12,[r15+0x40]
    cmp ax,r12w
    jne .9
    lea rdi,[r15+0x40]
    mov rcx,[r15+0x50]
    mov eax,[r15+0x60]
    and eax,r12d
    mov rdx,rax
    shl rdx,4
    mov rcx,[rcx+rdx]
    mov [rsp+8],rcx
    mov ecx,[r15+0x48]
    test ecx,ecx
    jne .11
    xor r15d,r15d
    mov rdx,[rsp+0x30]
    jmp .13
.5:
    test ebp,ebp
    je .31
    mov rdi,rbx
    call uverbs::cq::CompletionQueue<P>::go_on
    mov ebp,eax
    test eax,eax
    jne .3
    jmp .31
.6:
    jl .31
    jmp .10
.7:
    movzx eax,word [r13+0x3C]
    rol ax,8
    mov r14,[r15]
    sub eax,r14d
    movzx ecx,ax
    add r14d,ecx
    mov rdx,[r15+0x10]
    mov edi,[r15+0x20]
    mov eax,r14d
    and eax,edi
    mov rsi,rax
    shl rsi,4
    mov r8d,r14d
    not r8d
    add r8d,[rdx+rsi+8]
    cmp r8d,edi
    ja .10
    add rdx,rsi
    mov rsi,[rdx]
    mov [rsp+8],rsi
    mov r12,[rdx+8]
    mov edx,[r15+8]
    test edx,edx
    je .21
    dec edx
    or edx,ecx
    jne .29
.8:
    mov rcx,[r15+0x18]
    shl rax,4
    mov rsi,[rcx+rax]
    mov rdx,[rcx+rax+8]
    mov qword [rcx+rax],0
    jmp .22
.9:
    lea rdi,[rsp+0x38]
    mov rsi,r15
    mov rdx,r13
    call qword [rel uverbs_mlx5::cq::take_shared]
    cmp byte [rsp+0x38],0
    je .10
    mov r15,[rsp+0x40]
    mov rsi,[rsp+0x48]
    mov rcx,[rsp+0x50]
    test r15,r15
    jne .14
    jmp .16
.10:
    lea rdi,[rsp+0x38]
    mov rsi,rbx
    call qword [rel uverbs_mlx5::cq::Cq::next_odd]
    cmp byte [rsp+0x38],0
    je .31
    mov r13,[rsp+0x40]
    mov r14,[rsp+0x48]
    mov r15,[rsp+0x50]
    mov r12,[rsp+0x58]
    mov rcx,[rsp+0x60]
    jmp .18
.11:
    cmp ecx,1
    jne .28
.12:
    mov rcx,[r15+0x58]
    shl rax,4
    mov r15,[rcx+rax]
    mov rdx,[rcx+rax+8]
    mov qword [rcx+rax],0
.13:
    inc r12d
    mov [rdi],r12
    mov [rsp+0x30],rdx
    mov rsi,rdx
    mov rcx,[rsp+8]
    test r15,r15
    je .16
.14:
    xor eax,eax
    cmp r14b,1
    je .15
    mov eax,[r13+0x2C]
    bswap eax
    cmp eax,[r15+0x18]
    ja .27
.15:
    mov rdx,rcx
    mov rcx,0xFFFFFFFF00000000
    and rsi,rcx
    mov rcx,rdx
    mov eax,eax
    or rsi,rax
.16:
    inc dword [rbx+0x10]
    mov eax,[rbx+0x18]
    add rax,[rbx]
    mov [rbx],rax
    cmp rax,[rbx+8]
    je .17
    mov r12,rsi
    jmp .18
.17:
    mov r12,rsi
    mov rax,[rbx+0x38]
    mov [rbx],rax
    xor byte [rbx+0x1C],1
.18:
    dec ebp
    mov rdx,[rsp+0x10]
    add [rdx],rcx
    inc qword [rsp+0x18]
    movzx eax,r14b
    lea ecx,[rax-1]
    cmp ecx,4
    jae .20
.19:
    mov eax,[r13+0x2C]
    bswap eax
    add [rdx+8],rax
    jmp .25
.20:
    test eax,eax
    je .24
    mov [rsp+8],r15
    test r14b,r14b
    js .30
    mov rdi,r13
    mov rsi,r14
    mov r15,[rsp+8]
    call qword [rel uverbs_mlx5::cqe::Cqe::failure]
    mov rax,[rsp+0x10]
    inc qword [rax+0x10]
    jmp .25
.21:
    xor esi,esi
    mov rdx,[rsp+0x28]
.22:
    mov [r15],r12
    inc dword [rbx+0x10]
    mov eax,[rbx+0x18]
    add rax,[rbx]
    mov [rbx],rax
    cmp rax,[rbx+8]
    jne .23
    mov rax,[rbx+0x38]
    mov [rbx],rax
    xor byte [rbx+0x1C],1
.23:
    dec ebp
    inc qword [rsp+0x18]
    mov rax,[rsp+0x10]
    mov rcx,[rsp+8]
    add [rax],rcx
    mov [rsp+0x28],rdx
    mov r12,rdx
    mov r15,rsi
.24:
    mov eax,[r13+0x38]
.25:
    test r15,r15
    je .2
    add r15,0x10
    mov rdi,r15
    mov rsi,r12
    call qword [rel uverbs_core::memory::registered::give_back]
    jmp .2
.26:
    mov rdi,rbx
    call qword [rel uverbs_mlx5::cq::Cq::look_ahead]
    jmp .4
.27:
    mov [rsp+8],rcx
    mov r12,r15
    add r15,0x10
    mov rdi,r15
    mov [rsp+0x20],rsi
    mov edx,eax
    call qword [rel uverbs_core::memory::registered::Registered::spread]
    mov r15,r12
    mov rsi,[rsp+0x20]
    mov rcx,[rsp+8]
    jmp .15
.28:
    mov esi,r12d
    call qword [rel uverbs_core::queues::slots::SlotTable::pass_over]
    mov eax,[r15+0x60]
    and eax,r12d
    lea rdi,[r15+0x40]
    jmp .12
.29:
    mov rdi,r15
    mov esi,r14d
    call qword [rel uverbs_core::queues::slots::SlotTable::pass_over]
    and r14d,[r15+0x20]
    mov rax,r14
    jmp .8
.30:
    mov rdi,r13
    mov rsi,r14
    mov r15,[rsp+8]
    call qword [rel uverbs_mlx5::cqe::Cqe::completed_of_tags]
    mov rdx,[rsp+0x10]
    jmp .19
.31:
    mov eax,[rbx+0x10]
    cmp eax,[rbx+0x14]
    je .32
    mov [rbx+0x14],eax
    mov rcx,[rbx+0x30]
    and eax,0xFFFFFF
    bswap eax
    mov [rcx],eax
.32:
    mov rax,[rsp+0x18]
    add rsp,0x68
    pop rbx
    pop r12
    pop r13
    pop r14
    pop r15
    pop rbp
    ret
.33:
    mov r14,rsi
    mov esi,0x10
    mov rdi,rbx
    call uverbs::cq::CompletionQueue<P>::begin
    mov rsi,r14
    mov ebp,eax
    jmp .1
    mov r14,rax
    test r15,r15
    je .35
    mov rdi,[rsp+8]
    add rdi,0x10
    mov rsi,r12
    jmp .34
    mov r14,rax
    mov rdi,r15
    mov rsi,[rsp+0x20]
.34:
    call qword [rel uverbs_core::memory::registered::give_back]
    jmp .35
    mov r14,rax
.35:
    mov eax,[rbx+0x10]
    cmp eax,[rbx+0x14]
    je .36
    mov [rbx+0x14],eax
    mov rcx,[rbx+0x30]
    and eax,0xFFFFFF
    bswap eax
    mov [rcx],eax
.36:
    mov rdi,r14
    call _Unwind_Resume
