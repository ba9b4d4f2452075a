; rustc 1.95.0 (59807616e 2026-04-14)
    push rbp
    push r15
    push r14
    push r13
    push r12
    push rbx
    sub rsp,0x68
    mov [rsp+0x28],rsi
    mov rbx,rdi
    mov rax,[rdi+0x80]
    movzx eax,byte [rax+0x64]
    test al,al
    jne .27
.1:
    mov rax,[rbx+0x80]
    mov eax,[rax+0x60]
    shr eax,2
    inc eax
    mov [rsp+0x34],eax
    mov qword [rsp+0x20],0
    xor r12d,r12d
    jmp .3
.2:
    mov rcx,[rsp+0x20]
    inc rcx
    mov [rsp+0x20],rcx
    cmp rcx,0x10
    mov r12d,[rsp+0x1C]
    je .24
.3:
    cmp r12d,[rsp+0x34]
    jne .4
    mov rax,[rbx+0x20]
    mov ecx,[rbx+8]
    mov edx,0xFFFFFF
    and ecx,edx
    bswap ecx
    mov [rax],ecx
    xor r12d,r12d
.4:
    inc r12d
    mov edx,[rbx+8]
    mov r13,[rbx]
    mov esi,[rbx+0xC]
    mov ecx,esi
    and ecx,edx
    mov eax,[rbx+0x10]
    imul rax,rcx
    movzx ecx,byte [r13+rax+0x3F]
    inc esi
    mov edi,ecx
    and dil,1
    test esi,edx
    sete dl
    cmp dl,dil
    mov [rsp+0x1C],r12d
    je .23
    movzx ecx,cl
    mov [rsp+8],rcx
    cmp cl,0x50
    jae .20
    add r13,rax
    mov eax,[r13+0x20]
    mov ecx,0xFFFFFF00
    and eax,ecx
    bswap eax
    cmp eax,[rbx+0x14]
    je .5
    mov rcx,[rbx+0x40]
    mov edx,eax
    cmp rcx,rdx
    jbe .20
    mov rsi,[rbx+0x38]
    mov rdx,[rsi+rdx*8]
    test rdx,rdx
    je .20
    add rdx,0x40
    mov [rbx+0x14],eax
    mov [rbx+0x18],rdx
    cmp rcx,0x101
    jb .5
    mov rdi,rbx
    call qword [rel uverbs_mlx5::cq::Cq::look_ahead]
.5:
    inc dword [rbx+8]
    mov rax,[rsp+8]
    shr eax,4
    mov [rsp+8],rax
    mov r14,[rbx+0x18]
    je .8
    lea rdi,[r14+0x40]
    mov ebp,[r14+0x40]
    mov rdx,[r14+0x48]
    mov ecx,[r14+0x58]
    mov eax,ecx
    and eax,ebp
    mov rsi,rax
    shl rsi,4
    mov rdx,[rdx+rsi]
    mov [rsp+0x10],rdx
    movzx edx,byte [r14+0x44]
    test dl,dl
    je .10
    mov edx,[rdi]
    xor edx,ebp
    test edx,ecx
    je .6
    mov esi,ebp
    call qword [rel uverbs_core::table::SlotTable::pass_over]
    mov eax,[r14+0x58]
    and eax,ebp
.6:
    mov rcx,[r14+0x50]
    shl rax,4
    mov r15,[rcx+rax]
    mov r12,[rcx+rax+8]
    mov qword [rcx+rax],0
    inc ebp
    mov [r14+0x40],ebp
    test r15,r15
    je .11
    xor eax,eax
    cmp byte [rsp+8],1
    je .7
    mov eax,[r13+0x2C]
    bswap eax
.7:
    mov ecx,[r15+0x18]
    cmp ecx,eax
    cmovb eax,ecx
    mov rcx,0xFFFFFFFF00000000
    and r12,rcx
    or r12,rax
    jmp .14
.8:
    movzx eax,word [r13+0x3C]
    rol ax,8
    movzx r15d,ax
    mov rdx,[r14+8]
    mov ecx,[r14+0x18]
    mov eax,ecx
    and eax,r15d
    mov esi,eax
    shl esi,4
    mov rdi,[rdx+rsi]
    mov [rsp+0x10],rdi
    mov ebp,[rdx+rsi+8]
    movzx edx,byte [r14+4]
    test dl,dl
    je .12
    mov edx,[r14]
    xor edx,r15d
    test edx,ecx
    je .9
    mov rdi,r14
    mov esi,r15d
    call qword [rel uverbs_core::table::SlotTable::pass_over]
    and r15d,[r14+0x18]
    mov rax,r15
.9:
    mov rcx,[r14+0x10]
    shl eax,4
    mov r15,[rcx+rax]
    mov r12,[rcx+rax+8]
    mov qword [rcx+rax],0
    jmp .13
.10:
    inc ebp
    mov [rdi],ebp
.11:
    xor r15d,r15d
    jmp .14
.12:
    xor r15d,r15d
.13:
    mov [r14],ebp
.14:
    mov rcx,[rsp+0x10]
.15:
    mov rax,[rsp+0x28]
    add [rax],rcx
    movzx eax,byte [rsp+8]
    lea ecx,[rax-1]
    cmp ecx,4
    jae .19
.16:
    mov eax,[r13+0x2C]
    bswap eax
.17:
    mov rcx,[rsp+0x28]
    add [rcx+8],rax
.18:
    test r15,r15
    je .2
    add r15,0x10
    shr r12,0x20
    mov rdi,r15
    mov esi,r12d
    call qword [rel uverbs_core::frame::give_back]
    jmp .2
.19:
    test eax,eax
    jne .21
    mov eax,[r13+0x38]
    jmp .18
.20:
    lea rdi,[rsp+0x38]
    mov rsi,rbx
    call qword [rel uverbs_mlx5::cq::Cq::next_odd]
    cmp byte [rsp+0x38],0
    je .25
    mov r15,[rsp+0x50]
    mov r13,[rsp+0x40]
    mov rax,[rsp+0x48]
    mov [rsp+8],rax
    mov r12,[rsp+0x58]
    mov rcx,[rsp+0x60]
    jmp .15
.21:
    mov rdi,r13
    mov rsi,[rsp+8]
    call qword [rel uverbs_mlx5::cqe::Cqe::failure]
    cmp al,0xE
    jne .22
    mov rax,[rsp+8]
    cmp al,0xD
    je .18
    movzx eax,al
    cmp eax,0xE
    jne .16
    xor eax,eax
    jmp .17
.22:
    mov rax,[rsp+0x28]
    inc qword [rax+0x10]
    jmp .18
.23:
    mov rax,[rbx+0x28]
    movzx eax,byte [rax+0x64]
    test al,al
    je .25
    mov rdi,rbx
    call qword [rel uverbs_mlx5::cq::Cq::learn]
    jmp .25
.24:
    mov eax,0x10
    mov [rsp+0x20],rax
.25:
    test r12d,r12d
    je .26
    mov rax,[rbx+0x20]
    mov ecx,0xFFFFFF
    and ecx,[rbx+8]
    bswap ecx
    mov [rax],ecx
.26:
    mov rax,[rsp+0x20]
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
    jmp .1
    jmp .28
    mov r14,rax
    test r15,r15
    je .29
    add r15,0x10
    shr r12,0x20
    mov rdi,r15
    mov esi,r12d
    call qword [rel uverbs_core::frame::give_back]
    jmp .29
.28:
    mov r14,rax
.29:
    cmp dword [rsp+0x1C],0
    je .30
    mov rax,[rbx+0x20]
    mov ecx,0xFFFFFF
    and ecx,[rbx+8]
    bswap ecx
    mov [rax],ecx
.30:
    mov rdi,r14
    call _Unwind_Resume
