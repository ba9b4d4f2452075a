; rustc 1.95.0 (59807616e 2026-04-14)
    push rbp
    push r15
    push r14
    push r13
    push r12
    push rbx
    sub rsp,0x68
    mov [rsp+0x20],rsi
    mov rbx,rdi
    mov rax,[rdi+0x80]
    movzx eax,byte [rax+0x68]
    test al,al
    jne .24
.1:
    mov rax,[rbx+0x80]
    mov eax,[rax+0x1C]
    cmp eax,0x10
    mov ecx,0x10
    mov [rsp+0x2C],eax
    cmovb ecx,eax
    mov esi,0x10
    sub esi,ecx
    xor r12d,r12d
    mov [rsp+0xC],ecx
    test ecx,ecx
    je .19
.2:
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
    je .25
    movzx ecx,cl
    mov [rsp],rcx
    cmp cl,0x50
    mov [rsp+0x30],r12
    jae .21
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
    jbe .21
    mov rsi,[rbx+0x38]
    shl rdx,5
    mov rdx,[rsi+rdx]
    test rdx,rdx
    je .21
    add rdx,0x40
    mov [rbx+0x14],eax
    mov [rbx+0x18],rdx
    cmp rcx,0x101
    jb .4
    mov rdi,rbx
    call qword [rel uverbs_mlx5::cq::Cq::look_ahead]
.4:
    inc dword [rbx+8]
    mov rax,[rsp]
    shr eax,4
    mov [rsp],rax
    mov r13,[rbx+0x18]
    je .7
    lea rdi,[r13+0x40]
    mov r15d,[r13+0x40]
    mov rdx,[r13+0x48]
    mov ecx,[r13+0x58]
    mov eax,ecx
    and eax,r15d
    mov rsi,rax
    shl rsi,4
    mov rdx,[rdx+rsi]
    mov [rsp+0x10],rdx
    movzx edx,byte [r13+0x44]
    test dl,dl
    je .9
    mov edx,[rdi]
    xor edx,r15d
    test edx,ecx
    je .5
    mov esi,r15d
    call qword [rel uverbs_core::table::SlotTable::pass_over]
    mov eax,[r13+0x58]
    and eax,r15d
.5:
    mov rcx,[r13+0x50]
    shl rax,4
    mov r14,[rcx+rax]
    mov r12,[rcx+rax+8]
    mov qword [rcx+rax],0
    inc r15d
    mov [r13+0x40],r15d
    test r14,r14
    je .10
    xor eax,eax
    cmp byte [rsp],1
    je .6
    mov eax,[rbp+0x2C]
    bswap eax
.6:
    mov ecx,[r14+0x18]
    cmp ecx,eax
    cmovb eax,ecx
    mov rcx,0xFFFFFFFF00000000
    and r12,rcx
    or r12,rax
    jmp .13
.7:
    movzx eax,word [rbp+0x3C]
    rol ax,8
    movzx r14d,ax
    mov rdx,[r13+8]
    mov ecx,[r13+0x18]
    mov eax,ecx
    and eax,r14d
    mov esi,eax
    shl esi,4
    mov rdi,[rdx+rsi]
    mov [rsp+0x10],rdi
    mov r15d,[rdx+rsi+8]
    movzx edx,byte [r13+4]
    test dl,dl
    je .11
    mov edx,[r13]
    xor edx,r14d
    test edx,ecx
    je .8
    mov rdi,r13
    mov esi,r14d
    call qword [rel uverbs_core::table::SlotTable::pass_over]
    and r14d,[r13+0x18]
    mov rax,r14
.8:
    mov rcx,[r13+0x10]
    shl eax,4
    mov r14,[rcx+rax]
    mov r12,[rcx+rax+8]
    mov qword [rcx+rax],0
    jmp .12
.9:
    inc r15d
    mov [rdi],r15d
.10:
    xor r14d,r14d
    jmp .13
.11:
    xor r14d,r14d
.12:
    mov [r13],r15d
.13:
    mov rcx,[rsp+0x10]
.14:
    mov rax,[rsp+0x20]
    add [rax],rcx
    movzx eax,byte [rsp]
    lea ecx,[rax-1]
    cmp ecx,4
    jae .20
.15:
    mov eax,[rbp+0x2C]
    bswap eax
.16:
    mov rcx,[rsp+0x20]
    add [rcx+8],rax
.17:
    test r14,r14
    je .18
    add r14,0x10
    shr r12,0x20
    mov rdi,r14
    mov esi,r12d
    call qword [rel uverbs_core::frame::give_back]
.18:
    mov ecx,[rsp+0xC]
    dec ecx
    mov r12,[rsp+0x30]
    inc r12
    mov rsi,[rsp+0x18]
    mov [rsp+0xC],ecx
    test ecx,ecx
    jne .2
.19:
    test rsi,rsi
    je .26
    mov rdi,rbx
    mov [rsp+0x18],rsi
    mov edx,[rsp+0x2C]
    call uverbs::cq::go_on
    mov [rsp+0xC],eax
    mov eax,[rsp+0xC]
    sub [rsp+0x18],rax
    jmp .3
.20:
    test eax,eax
    jne .22
    mov eax,[rbp+0x38]
    jmp .17
.21:
    lea rdi,[rsp+0x38]
    mov rsi,rbx
    call qword [rel uverbs_mlx5::cq::Cq::next_odd]
    cmp byte [rsp+0x38],0
    je .26
    mov r14,[rsp+0x50]
    mov rbp,[rsp+0x40]
    mov rax,[rsp+0x48]
    mov [rsp],rax
    mov r12,[rsp+0x58]
    mov rcx,[rsp+0x60]
    jmp .14
.22:
    mov rdi,rbp
    mov rsi,[rsp]
    call qword [rel uverbs_mlx5::cqe::Cqe::failure]
    cmp al,0xE
    jne .23
    mov rax,[rsp]
    cmp al,0xD
    je .17
    movzx eax,al
    cmp eax,0xE
    jne .15
    xor eax,eax
    jmp .16
.23:
    mov rax,[rsp+0x20]
    inc qword [rax+0x10]
    jmp .17
.24:
    mov rdi,rbx
    call qword [rel uverbs_mlx5::cq::Cq::learn]
    jmp .1
.25:
    mov rax,[rbx+0x28]
    movzx eax,byte [rax+0x68]
    test al,al
    jne .27
.26:
    mov eax,0xFFFFFF
    and eax,[rbx+8]
    mov rcx,[rbx+0x20]
    bswap eax
    mov [rcx],eax
    mov rax,r12
    add rsp,0x68
    pop rbx
    pop r12
    pop r13
    pop r14
    pop r15
    pop rbp
    ret
.27:
    mov rdi,rbx
    call qword [rel uverbs_mlx5::cq::Cq::learn]
    jmp .26
    jmp .28
    mov r15,rax
    test r14,r14
    je .29
    add r14,0x10
    shr r12,0x20
    mov rdi,r14
    mov esi,r12d
    call qword [rel uverbs_core::frame::give_back]
    jmp .29
.28:
    mov r15,rax
.29:
    mov rax,[rbx+0x20]
    mov ecx,0xFFFFFF
    and ecx,[rbx+8]
    bswap ecx
    mov [rax],ecx
    mov rdi,r15
    call _Unwind_Resume
