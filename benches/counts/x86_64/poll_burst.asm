; rustc 1.95.0 (59807616e 2026-04-14)
    push rbp
    push r15
    push r14
    push r13
    push r12
    push rbx
    sub rsp,0x68
    mov rbx,rdi
    mov rax,[rdi+0x90]
    mov eax,[rax+0xC4]
    mov ebp,0x10
    cmp eax,0xF
    jbe .32
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
    mov edx,eax
    bswap edx
    shr edx,8
    mov rcx,[rbx+0x58]
    sub edx,[rbx+0x60]
    cmp rcx,rdx
    jbe .10
    mov rsi,[rbx+0x50]
    shl rdx,5
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
    mov r12,[r15+0x80]
    cmp ax,r12w
    jne .9
    lea rsi,[r15+0x80]
    mov rcx,[r15+0x90]
    mov eax,[r15+0xA0]
    and eax,r12d
    mov rdx,rax
    shl rdx,4
    mov rcx,[rcx+rdx]
    mov [rsp+8],rcx
    mov ecx,[r15+0x88]
    test ecx,ecx
    jne .11
    xor edi,edi
    mov r8,[rsp+0x30]
    jmp .13
.5:
    test ebp,ebp
    je .30
    mov rdi,rbx
    call uverbs::cq::queue::CompletionQueue<P>::go_on
    mov ebp,eax
    test eax,eax
    jne .3
    jmp .30
.6:
    jl .30
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
    mov r12,[rdx+rsi+8]
    mov r8d,r14d
    not r8d
    add r8d,r12d
    cmp r8d,edi
    ja .10
    add rdx,rsi
    mov rdx,[rdx]
    mov [rsp+8],rdx
    mov edx,[r15+8]
    test edx,edx
    je .20
    dec edx
    or edx,ecx
    jne .29
.8:
    mov rcx,[r15+0x18]
    shl rax,4
    mov rdi,[rcx+rax]
    mov r8,[rcx+rax+8]
    mov qword [rcx+rax],0
    jmp .21
.9:
    lea rdi,[rsp+0x38]
    mov rsi,r15
    mov rdx,r13
    call qword [rel uverbs_mlx5::cq::take::take_shared]
    cmp byte [rsp+0x38],0
    je .10
    mov rdi,[rsp+0x40]
    mov r8,[rsp+0x48]
    mov r15,[rsp+0x50]
    test rdi,rdi
    jne .14
    jmp .16
.10:
    lea rdi,[rsp+0x38]
    mov rsi,rbx
    call qword [rel uverbs_mlx5::cq::slow::<impl uverbs_mlx5::cq::Cq>::next_slow]
    cmp byte [rsp+0x38],0
    je .30
    mov r13,[rsp+0x40]
    mov r14,[rsp+0x48]
    mov rdi,[rsp+0x50]
    mov r8,[rsp+0x58]
    mov r15,[rsp+0x60]
    jmp .17
.11:
    cmp ecx,1
    jne .28
.12:
    mov rcx,[r15+0x98]
    shl rax,4
    mov rdi,[rcx+rax]
    mov r8,[rcx+rax+8]
    mov qword [rcx+rax],0
.13:
    inc r12d
    mov [rsi],r12
    mov [rsp+0x30],r8
    mov r15,[rsp+8]
    test rdi,rdi
    je .16
.14:
    xor eax,eax
    cmp r14b,1
    je .15
    mov eax,[r13+0x2C]
    bswap eax
    cmp eax,[rdi+0x1C]
    ja .25
.15:
    mov rcx,0xFFFFFFFF00000000
    and r8,rcx
    mov eax,eax
    or r8,rax
.16:
    inc dword [rbx+0x10]
    mov eax,[rbx+0x18]
    add rax,[rbx]
    mov [rbx],rax
    cmp rax,[rbx+8]
    jne .17
    mov rax,[rbx+0x38]
    mov [rbx],rax
    xor byte [rbx+0x1C],1
.17:
    dec ebp
    mov rdx,[rsp+0x10]
    add [rdx],r15
    inc qword [rsp+0x18]
    movzx eax,r14b
    lea ecx,[rax-1]
    cmp ecx,4
    jae .19
.18:
    mov eax,[r13+0x2C]
    bswap eax
    add [rdx+8],rax
    test rdi,rdi
    jne .24
    jmp .2
.19:
    test eax,eax
    je .23
    test r14b,r14b
    jns .27
    movzx eax,byte [r13+0x29]
    mov rdx,[rsp+0x10]
    jmp .18
.20:
    xor edi,edi
    mov r8,[rsp+0x28]
.21:
    mov [r15],r12
    inc dword [rbx+0x10]
    mov eax,[rbx+0x18]
    add rax,[rbx]
    mov [rbx],rax
    cmp rax,[rbx+8]
    jne .22
    mov rax,[rbx+0x38]
    mov [rbx],rax
    xor byte [rbx+0x1C],1
.22:
    dec ebp
    inc qword [rsp+0x18]
    mov rax,[rsp+0x10]
    mov rcx,[rsp+8]
    add [rax],rcx
    mov [rsp+0x28],r8
.23:
    mov eax,[r13+0x38]
    test rdi,rdi
    je .2
.24:
    add rdi,0x10
    mov rsi,r8
    call qword [rel uverbs_core::memory::registered::give_back]
    jmp .2
.25:
    mov r12,rdi
    add rdi,0x10
    mov [rsp+0x20],rdi
    mov [rsp+8],r8
    mov rsi,r8
    mov edx,eax
    call qword [rel uverbs_core::memory::registered::Registered::spread]
    mov rdi,r12
    mov r8,[rsp+8]
    jmp .15
.26:
    mov rdi,rbx
    call qword [rel uverbs_mlx5::cq::Cq::look_ahead]
    jmp .4
.27:
    mov r12,r8
    mov r15,rdi
    mov rdi,r13
    mov rsi,r14
    call qword [rel uverbs_mlx5::cqe::Cqe::failure]
    mov rsi,[rsp+0x10]
    inc qword [rsi+0x10]
    mov rdi,r15
    mov r8,r12
    test rdi,rdi
    jne .24
    jmp .2
.28:
    mov rdi,rsi
    mov esi,r12d
    call qword [rel uverbs_core::queues::slots::SlotTable::pass_over]
    mov eax,[r15+0xA0]
    and eax,r12d
    lea rsi,[r15+0x80]
    jmp .12
.29:
    mov rdi,r15
    mov esi,r14d
    call qword [rel uverbs_core::queues::slots::SlotTable::pass_over]
    and r14d,[r15+0x20]
    mov rax,r14
    jmp .8
.30:
    mov eax,[rbx+0x10]
    cmp eax,[rbx+0x14]
    je .31
    mov [rbx+0x14],eax
    mov rcx,[rbx+0x30]
    and eax,0xFFFFFF
    bswap eax
    mov [rcx],eax
.31:
    mov rax,[rsp+0x18]
    add rsp,0x68
    pop rbx
    pop r12
    pop r13
    pop r14
    pop r15
    pop rbp
    ret
.32:
    mov r14,rsi
    mov esi,0x10
    mov rdi,rbx
    call uverbs::cq::queue::CompletionQueue<P>::begin
    mov rsi,r14
    mov ebp,eax
    jmp .1
    mov r14,rax
    test r15,r15
    je .34
    mov rdi,r15
    add rdi,0x10
    mov rsi,r12
    jmp .33
    mov r14,rax
    mov rdi,[rsp+0x20]
    mov rsi,[rsp+8]
.33:
    call qword [rel uverbs_core::memory::registered::give_back]
    jmp .34
    mov r14,rax
.34:
    mov eax,[rbx+0x10]
    cmp eax,[rbx+0x14]
    je .35
    mov [rbx+0x14],eax
    mov rcx,[rbx+0x30]
    and eax,0xFFFFFF
    bswap eax
    mov [rcx],eax
.35:
    mov rdi,r14
    call _Unwind_Resume
