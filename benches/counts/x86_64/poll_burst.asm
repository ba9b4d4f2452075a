; rustc 1.95.0 (59807616e 2026-04-14)
    push rbp
    push r15
    push r14
    push r13
    push r12
    push rbx
    sub rsp,0x68
    mov [rsp+0x10],rsi
    mov rbx,rdi
    mov rax,[rdi+0x80]
    movzx eax,byte [rax+0x88]
    test al,al
    jne .27
.1:
    mov rax,[rbx+0x80]
    mov eax,[rax+0x1C]
    cmp eax,0x10
    mov ecx,0x10
    mov [rsp+0x34],eax
    cmovb ecx,eax
    mov esi,0x10
    mov [rsp+0xC],ecx
    sub esi,ecx
    mov qword [rsp+0x28],0
.2:
    cmp dword [rsp+0xC],0
    je .7
    mov [rsp+0x18],rsi
.3:
    mov edx,[rbx+8]
    mov rbp,[rbx]
    mov esi,[rbx+0xC]
    lea ecx,[rsi-1]
    and ecx,edx
    mov eax,[rbx+0x10]
    imul rax,rcx
    movzx ecx,byte [rbp+rax+0x3F]
    mov edi,ecx
    and dil,1
    test esi,edx
    sete dl
    cmp dl,dil
    je .28
    movzx r15d,cl
    cmp r15b,0x50
    jae .10
    add rbp,rax
    mov eax,[rbp+0x20]
    mov ecx,0xFFFFFF00
    and eax,ecx
    cmp eax,[rbx+0x14]
    je .4
    mov rcx,[rbx+0x40]
    mov edx,eax
    bswap edx
    cmp rcx,rdx
    jbe .10
    mov rsi,[rbx+0x38]
    shl rdx,5
    mov rdx,[rsi+rdx]
    test rdx,rdx
    je .10
    add rdx,0x40
    mov [rbx+0x14],eax
    mov [rbx+0x18],rdx
    cmp rcx,0x101
    jb .4
    mov rdi,rbx
    call qword [rel uverbs_mlx5::cq::Cq::look_ahead]
.4:
    shr r15d,4
    mov r14,[rbx+0x18]
    je .8
    mov r13d,[r14+0x40]
    movzx eax,word [rbp+0x3C]
    rol ax,8
    cmp ax,r13w
    jne .9
    lea rdi,[r14+0x40]
    mov rdx,[r14+0x50]
    mov ecx,[r14+0x60]
    mov eax,ecx
    and eax,r13d
    mov rsi,rax
    shl rsi,4
    mov rdx,[rdx+rsi]
    mov [rsp+0x20],rdx
    movzx edx,byte [r14+0x48]
    test dl,dl
    je .11
    mov edx,[r14+0x40]
    xor edx,r13d
    and edx,ecx
    mov ecx,[r14+0x44]
    or ecx,edx
    je .5
    mov esi,r13d
    call qword [rel uverbs_core::queues::slots::SlotTable::pass_over]
    mov eax,[r14+0x60]
    and eax,r13d
.5:
    mov rcx,[r14+0x58]
    shl rax,4
    mov r12,[rcx+rax]
    mov rsi,[rcx+rax+8]
    mov qword [rcx+rax],0
    inc r13d
    mov [r14+0x40],r13d
    inc dword [rbx+8]
    test r12,r12
    je .12
    xor eax,eax
    cmp r15b,1
    je .6
    mov eax,[rbp+0x2C]
    bswap eax
    cmp eax,[r12+0x18]
    ja .25
.6:
    mov rcx,0xFFFFFFFF00000000
    and rsi,rcx
    mov r14d,eax
    or r14,rsi
    jmp .13
.7:
    test rsi,rsi
    je .29
    mov rdi,rbx
    mov [rsp+0x18],rsi
    mov edx,[rsp+0x34]
    call uverbs::cq::go_on
    mov [rsp+0xC],eax
    mov eax,[rsp+0xC]
    sub [rsp+0x18],rax
    jmp .3
.8:
    movzx eax,word [rbp+0x3C]
    rol ax,8
    mov ecx,[r14]
    sub eax,ecx
    movzx eax,ax
    mov ecx,[r14+0x20]
    lea edx,[rcx+1]
    cmp edx,eax
    jbe .9
    movzx eax,word [rbp+0x3C]
    rol ax,8
    movzx r15d,ax
    mov rdx,[r14+0x10]
    mov eax,ecx
    and eax,r15d
    mov esi,eax
    shl esi,4
    mov r13d,[rdx+rsi+8]
    mov edi,[r14]
    not edi
    add edi,r13d
    cmp edi,ecx
    jbe .19
.9:
    mov qword [rsp+0x38],0
.10:
    lea rdi,[rsp+0x38]
    mov rsi,rbx
    call qword [rel uverbs_mlx5::cq::Cq::next_odd]
    cmp byte [rsp+0x38],0
    je .29
    mov r12,[rsp+0x50]
    mov rbp,[rsp+0x40]
    mov r15,[rsp+0x48]
    mov r14,[rsp+0x58]
    mov rcx,[rsp+0x60]
    jmp .14
.11:
    inc r13d
    mov [rdi],r13d
    inc dword [rbx+8]
.12:
    xor r12d,r12d
.13:
    mov rcx,[rsp+0x20]
.14:
    dec dword [rsp+0xC]
    mov rax,[rsp+0x10]
    add [rax],rcx
    inc qword [rsp+0x28]
    movzx eax,r15b
    lea ecx,[rax-1]
    cmp ecx,4
    jae .18
.15:
    mov eax,[rbp+0x2C]
    bswap eax
.16:
    mov rcx,[rsp+0x10]
    add [rcx+8],rax
.17:
    test r12,r12
    mov rsi,[rsp+0x18]
    je .2
    add r12,0x10
    mov rdi,r12
    mov rsi,r14
    call qword [rel uverbs_core::memory::registered::give_back]
    mov rsi,[rsp+0x18]
    jmp .2
.18:
    test eax,eax
    je .24
    mov rdi,rbp
    mov rsi,r15
    call qword [rel uverbs_mlx5::cqe::Cqe::failure]
    cmp al,0xE
    jne .26
    cmp r15b,0xD
    je .17
    movzx eax,r15b
    cmp eax,0xE
    jne .15
    xor eax,eax
    jmp .16
.19:
    add rdx,rsi
    mov r12,[rdx]
    movzx edx,byte [r14+8]
    test dl,dl
    je .20
    mov edx,[r14]
    xor edx,r15d
    and edx,ecx
    mov ecx,[r14+4]
    or ecx,edx
    je .21
    mov rdi,r14
    mov esi,r15d
    call qword [rel uverbs_core::queues::slots::SlotTable::pass_over]
    mov rsi,r12
    and r15d,[r14+0x20]
    mov rax,r15
    jmp .22
.20:
    mov rsi,r12
    xor r12d,r12d
    jmp .23
.21:
    mov rsi,r12
.22:
    mov rcx,[r14+0x18]
    shl eax,4
    mov r12,[rcx+rax]
    mov rdx,[rcx+rax+8]
    mov qword [rcx+rax],0
.23:
    mov [r14],r13d
    inc dword [rbx+8]
    dec dword [rsp+0xC]
    inc qword [rsp+0x28]
    mov rax,[rsp+0x10]
    add [rax],rsi
    mov r14,rdx
.24:
    mov eax,[rbp+0x38]
    jmp .17
.25:
    lea r13,[r12+0x10]
    mov rdi,r13
    mov r14,rsi
    mov edx,eax
    call qword [rel uverbs_core::memory::registered::Registered::spread]
    mov rsi,r14
    jmp .6
.26:
    mov rax,[rsp+0x10]
    inc qword [rax+0x10]
    jmp .17
.27:
    mov rdi,rbx
    call qword [rel uverbs_mlx5::cq::Cq::learn]
    jmp .1
.28:
    mov rax,[rbx+0x28]
    movzx eax,byte [rax+0x88]
    test al,al
    jne .30
.29:
    mov eax,0xFFFFFF
    and eax,[rbx+8]
    mov rcx,[rbx+0x20]
    bswap eax
    mov [rcx],eax
    mov rax,[rsp+0x28]
    add rsp,0x68
    pop rbx
    pop r12
    pop r13
    pop r14
    pop r15
    pop rbp
    ret
.30:
    mov rdi,rbx
    call qword [rel uverbs_mlx5::cq::Cq::learn]
    jmp .29
    jmp .32
    mov r15,rax
    test r12,r12
    je .33
    add r12,0x10
    mov rdi,r12
    jmp .31
    mov r15,rax
    mov rdi,r13
.31:
    mov rsi,r14
    call qword [rel uverbs_core::memory::registered::give_back]
    jmp .33
.32:
    mov r15,rax
.33:
    mov rax,[rbx+0x20]
    mov ecx,0xFFFFFF
    and ecx,[rbx+8]
    bswap ecx
    mov [rax],ecx
    mov rdi,r15
    call _Unwind_Resume
