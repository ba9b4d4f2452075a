; rustc 1.95.0 (59807616e 2026-04-14)
    push rbp
    push r15
    push r14
    push r13
    push r12
    push rbx
    sub rsp,0x98
    mov eax,[rdi+0x30]
    cmp eax,[rdi+0x10]
    jne .23
    mov al,7
    test rcx,rcx
    je .22
.1:
    mov r11d,[rdi+0x10]
    mov r10d,[rdi+0x18]
    mov r8,rcx
    shl r8,4
    mov r12d,r11d
    neg r12d
    cmp rcx,1
    mov [rsp+0x60],r8
    jne .3
.2:
    add rdx,[rsp+0x60]
    mov rbx,[rdx-8]
    test ebx,ebx
    mov rcx,0x200000000
    mov r8,0x100000000
    cmovne r8,rcx
    cmp ebx,0x80000001
    mov ebp,0x401
    cmovb rbp,r8
    test bpl,1
    je .12
    shr ebp,8
    mov eax,ebp
    jmp .22
.3:
    lea rcx,[rdx+r8]
    add rcx,0xFFFFFFFFFFFFFFF0
    mov [rsp+0x68],rcx
    xorps xmm0,xmm0
    mov r15,rdx
    jmp .6
.4:
    and r9d,[r8+0x120]
    shl r9,4
    add r9,[r8+0x100]
    mov rcx,r9
.5:
    mov r10d,[rsp+0x18]
    inc r10d
    mov [rcx+0xC],r10d
    add r15,0x10
    mov r12d,r11d
    neg r12d
    cmp r15,[rsp+0x68]
    je .2
.6:
    mov ebp,r11d
    mov rbx,[r15+8]
    mov r13,0x100000000
    test ebx,ebx
    je .7
    mov r13,0x200000000
.7:
    cmp ebx,0x80000001
    mov ecx,0x401
    cmovae r13,rcx
    test r13b,1
    jne .15
    mov r14,[r15]
    shr r13,0x20
    cmp r13,1
    mov r11d,ebp
    sbb r11d,0xFFFFFFFF
    mov ecx,r11d
    sub ecx,[rdi+0x14]
    cmp ecx,[rdi+0x20]
    mov [rsp+0x18],r10d
    mov [rsp+0x20],r11
    ja .10
    cmp r10d,[rdi+0x1C]
    jns .10
.8:
    mov r9d,[rdi+0x24]
    or r9d,r13d
    movzx ecx,bp
    shl ecx,8
    or ecx,0xA
    shl rcx,0x20
    or r9,rcx
    bswap r9
    mov r8d,[rdi+8]
    add r12d,r11d
    mov r10d,r8d
    and r10d,ebp
    add r12d,r10d
    lea r11d,[r8+1]
    mov rcx,[rdi]
    cmp r12d,r11d
    ja .11
    mov r8d,r10d
    shl r8,6
    mov [rcx+r8],r9
    mov qword [rcx+r8+8],0
    test ebx,ebx
    je .9
    mov r9,rbx
    bswap r14
    shr r9,0x20
    shl rbx,0x20
    mov r10,0x7FFFFFFF00000000
    and rbx,r10
    or rbx,r9
    bswap rbx
    mov [rcx+r8+0x10],rbx
    mov [rcx+r8+0x18],r14
.9:
    mov r8,[rdi+0x58]
    mov r11,[rsp+0x20]
    lea r9d,[r11-1]
    mov rcx,[r8+0x100]
    mov r10d,[r8+0x120]
    and r10d,ebp
    shl r10,4
    mov [rcx+r10],rsi
    mov [rcx+r10+8],r11d
    cmp r9d,ebp
    jne .4
    add rcx,r10
    jmp .5
.10:
    mov [rsp+0x10],rdi
    mov rdi,[rsp+0x10]
    mov [rsp+0x28],rsi
    mov esi,r10d
    mov [rsp+0x58],rdx
    mov edx,r11d
    call qword [rel uverbs_mlx5::sq::Sq::make_room]
    xorps xmm0,xmm0
    mov r11,[rsp+0x20]
    mov rdx,[rsp+0x58]
    mov rsi,[rsp+0x28]
    mov rdi,[rsp+0x10]
    mov ecx,eax
    mov al,7
    cmp cl,7
    je .8
    jmp .25
.11:
    mov [rsp+0x30],r9
    mov qword [rsp+0x38],0
    mov dword [rsp+0x70],0
    lea rax,[rsp+0x80]
    movups [rax],xmm0
    mov qword [rsp+0x40],2
    mov [rsp+0x48],r14
    mov [rsp+0x50],rbx
    lea rax,[rsp+0x40]
    mov [rsp],rax
    mov rbx,rdi
    mov rdi,rcx
    mov r14,rsi
    mov esi,r8d
    mov r12,rdx
    mov edx,ebp
    mov ecx,r13d
    lea r8,[rsp+0x30]
    lea r9,[rsp+0x70]
    call qword [rel uverbs_mlx5::wqe::Ring::write_wrapped]
    xorps xmm0,xmm0
    mov rdx,r12
    mov rsi,r14
    mov rdi,rbx
    mov al,7
    jmp .9
.12:
    mov r14,[rdx-0x10]
    mov rdx,rbp
    shr rdx,0x20
    cmp rdx,1
    mov r15d,r11d
    sbb r15d,0xFFFFFFFF
    mov ecx,r15d
    sub ecx,[rdi+0x14]
    cmp ecx,[rdi+0x20]
    mov [rsp+0x18],rdx
    ja .24
    cmp r10d,[rdi+0x1C]
    jns .24
.13:
    mov r13d,[rdi+0x24]
    or r13d,edx
    movzx ecx,r11w
    shl ecx,8
    or ecx,0xA
    shl rcx,0x20
    or r13,rcx
    bswap r13
    mov edx,[rdi+8]
    add r12d,r15d
    mov r8d,edx
    and r8d,r11d
    add r12d,r8d
    lea r9d,[rdx+1]
    mov rcx,[rdi]
    cmp r12d,r9d
    ja .26
    mov edx,r8d
    shl rdx,6
    mov [rcx+rdx],r13
    mov qword [rcx+rdx+8],0x8000000
    test ebx,ebx
    je .14
    bswap r14
    mov r8d,0xFFFFFFFF
    mov r9,0x7FFFFFFF00000000
    or r9,r8
    rol rbx,0x20
    and rbx,r9
    bswap rbx
    mov [rcx+rdx+0x10],rbx
    mov [rcx+rdx+0x18],r14
.14:
    inc r10d
    mov rcx,[rdi+0x58]
    lea edx,[r15-1]
    mov r8,[rcx+0x100]
    mov r9d,[rcx+0x120]
    and r9d,r11d
    shl r9,4
    mov [r8+r9],rsi
    mov [r8+r9+8],r15d
    cmp edx,r11d
    jne .16
    add r8,r9
    mov [r8+0xC],r10d
    cmp r15d,[rdi+0x10]
    jne .17
    jmp .22
.15:
    shr r13d,8
    mov eax,r13d
    jmp .22
.16:
    and edx,[rcx+0x120]
    shl rdx,4
    add rdx,[rcx+0x100]
    mov r8,rdx
    mov [r8+0xC],r10d
    cmp r15d,[rdi+0x10]
    je .22
.17:
    mov rcx,[rdi+0x38]
    movzx edx,r15w
    bswap edx
    mov [rcx+4],edx
    cmp qword [rdi+0x40],0
    je .18
    mov r9d,[rdi+0x10]
    mov rcx,[rdi]
    mov edx,[rdi+8]
    sfence
    mov rsi,[rdi+0x48]
    mov r8d,[rdi+0x50]
    mov rbx,r11
    mov r11,0x200000000
    dec r11
    cmp rbp,r11
    jbe .19
    mov r11,rbx
    cmp r11d,r9d
    jne .19
    mov r9,[rsp+0x18]
    shl r9d,4
    cmp r9d,[rdi+0x54]
    ja .19
    and edx,r11d
    shl rdx,6
    mov r9,[rcx+rdx]
    mov [rsi+r8],r9
    mov r9,[rcx+rdx+8]
    mov [rsi+r8+8],r9
    mov r9,[rcx+rdx+0x10]
    mov [rsi+r8+0x10],r9
    mov r9,[rcx+rdx+0x18]
    mov [rsi+r8+0x18],r9
    mov r9,[rcx+rdx+0x20]
    mov [rsi+r8+0x20],r9
    mov r9,[rcx+rdx+0x28]
    mov [rsi+r8+0x28],r9
    mov r9,[rcx+rdx+0x30]
    mov [rsi+r8+0x30],r9
    mov rcx,[rcx+rdx+0x38]
    mov [rsi+r8+0x38],rcx
    jmp .20
.18:
    mov rcx,[rdi+0x48]
    mov [rcx],r13
    jmp .21
.19:
    mov [rsi+r8],r13
    sfence
.20:
    mov ecx,[rdi+0x54]
    xor [rdi+0x50],ecx
.21:
    mov [rdi+0x10],r15d
    mov [rdi+0x18],r10d
    mov [rdi+0x30],r15d
.22:
    add rsp,0x98
    pop rbx
    pop r12
    pop r13
    pop r14
    pop r15
    pop rbp
    ret
.23:
    mov rbx,rdi
    mov r15,rsi
    mov r12,rdx
    mov r14,rcx
    call qword [rel uverbs_mlx5::sq::Sq::disown]
    mov rcx,r14
    mov rdx,r12
    mov rsi,r15
    mov rdi,rbx
    mov al,7
    test rcx,rcx
    jne .1
    jmp .22
.24:
    mov [rsp+0x10],rdi
    mov rdi,[rsp+0x10]
    mov [rsp+0x28],rsi
    mov esi,r10d
    mov edx,r15d
    mov r13d,r10d
    mov [rsp+0x20],r11
    call qword [rel uverbs_mlx5::sq::Sq::make_room]
    mov rdx,[rsp+0x18]
    mov r11,[rsp+0x20]
    mov r10d,r13d
    mov rsi,[rsp+0x28]
    mov rdi,[rsp+0x10]
    mov ecx,eax
    mov al,7
    cmp cl,7
    je .13
.25:
    mov eax,ecx
    jmp .22
.26:
    mov [rsp+0x30],r13
    mov qword [rsp+0x38],0x8000000
    mov dword [rsp+0x70],0
    xorps xmm0,xmm0
    movups [rsp+0x80],xmm0
    mov qword [rsp+0x40],2
    mov [rsp+0x48],r14
    mov [rsp+0x50],rbx
    lea rax,[rsp+0x40]
    mov [rsp],rax
    lea r8,[rsp+0x30]
    lea r9,[rsp+0x70]
    mov [rsp+0x10],rdi
    mov rdi,rcx
    mov r14,rsi
    mov esi,edx
    mov edx,r11d
    mov rcx,[rsp+0x18]
    mov r12d,r10d
    mov rbx,r11
    call qword [rel uverbs_mlx5::wqe::Ring::write_wrapped]
    mov r11,rbx
    mov r10d,r12d
    mov rsi,r14
    mov rdi,[rsp+0x10]
    mov al,7
    jmp .14
