; rustc 1.95.0 (59807616e 2026-04-14)
    push rbp
    push r15
    push r14
    push r13
    push r12
    push rbx
    sub rsp,0x38
    mov [rsp+0x20],rsi
    mov eax,[rdi+0x38]
    cmp eax,[rdi+0x20]
    jne .19
    test rcx,rcx
    je .17
.1:
    mov esi,[rdi+0x24]
    mov r11d,[rdi+0x28]
    mov r9,rcx
    shl r9,4
    cmp rcx,1
    mov [rsp+0xC],eax
    mov [rsp+0x28],r9
    jne .5
    mov r14d,eax
.2:
    add rdx,[rsp+0x28]
    mov r15,[rdx-8]
    mov eax,4
    cmp r15d,0x80000000
    ja .18
    mov r13,[rdx-0x10]
    cmp r15d,1
    mov r12d,1
    sbb r12d,0xFFFFFFFF
    test esi,esi
    je .20
    dec esi
.3:
    or r12d,[rdi+0x2C]
    mov rax,[rdi]
    movzx ecx,r14w
    shl ecx,8
    or ecx,0xA
    shl rcx,0x20
    or r12,rcx
    bswap r12
    mov r9,[rdi+8]
    mov r10d,[rdi+0x18]
    and r10d,r14d
    mov rcx,r10
    shl rcx,6
    mov [rax+rcx],r12
    mov qword [rax+rcx+8],0x8000000
    test r15d,r15d
    je .4
    bswap r13
    mov edx,0xFFFFFFFF
    mov ebx,r11d
    mov r11,0x7FFFFFFF00000000
    or r11,rdx
    mov rdx,r15
    rol rdx,0x20
    and rdx,r11
    mov r11d,ebx
    bswap rdx
    mov [rax+rcx+0x10],rdx
    mov [rax+rcx+0x18],r13
.4:
    inc r11d
    lea edx,[r14+1]
    shl r10,4
    mov r8,[rsp+0x20]
    mov [r9+r10],r8
    mov [r9+r10+8],edx
    mov [r9+r10+0xC],r11d
    cmp edx,[rsp+0xC]
    je .17
    mov r8,[rdi+0x40]
    movzx r9d,dx
    bswap r9d
    mov [r8+4],r9d
    cmp byte [rdi+0x48],1
    jne .12
    mov rax,[rdi+0x50]
    mov [rax],r12
    jmp .16
.5:
    lea rcx,[rdx+r9]
    add rcx,0xFFFFFFFFFFFFFFF0
    mov [rsp+0x30],rcx
    mov ebp,eax
    shl ebp,8
    mov r13,rdx
    mov r14d,eax
    jmp .7
.6:
    inc r11d
    inc r14d
    shl r9,4
    mov rax,[rsp+0x20]
    mov [rcx+r9],rax
    mov [rcx+r9+8],r14d
    mov [rcx+r9+0xC],r11d
    add r13,0x10
    add ebp,0x100
    cmp r13,[rsp+0x30]
    je .2
.7:
    mov r15,[r13+8]
    cmp r15d,0x80000000
    ja .11
    mov r12,[r13]
    cmp r15d,1
    mov ebx,2
    sbb ebx,0
    test esi,esi
    je .9
    dec esi
.8:
    or ebx,[rdi+0x2C]
    mov rax,[rdi]
    mov ecx,ebp
    and ecx,0xFFFF00
    or ecx,0xA
    shl rcx,0x20
    or rbx,rcx
    bswap rbx
    mov rcx,[rdi+8]
    mov r9d,[rdi+0x18]
    and r9d,r14d
    mov r10,r9
    shl r10,6
    mov [rax+r10],rbx
    mov qword [rax+r10+8],0
    test r15d,r15d
    je .6
    mov ebx,r11d
    mov r11,r15
    bswap r12
    shr r11,0x20
    shl r15,0x20
    mov r8,0x7FFFFFFF00000000
    and r15,r8
    or r15,r11
    mov r11d,ebx
    bswap r15
    mov [rax+r10+0x10],r15
    mov [rax+r10+0x18],r12
    jmp .6
.9:
    mov [rsp+0x18],rdx
    mov [rsp+0x10],rdi
    mov esi,r14d
    mov [rsp+8],r11d
    mov edx,r11d
    mov ecx,1
    call qword [rel uverbs_mlx5::sq::Sq::make_room]
    mov ecx,eax
    mov eax,edx
    test cl,1
    je .10
    xor esi,esi
    cmp eax,0xB
    mov rdi,[rsp+0x10]
    mov rdx,[rsp+0x18]
    mov r11d,[rsp+8]
    je .8
    jmp .18
.10:
    mov esi,eax
    mov rdi,[rsp+0x10]
    mov rdx,[rsp+0x18]
    mov r11d,[rsp+8]
    jmp .8
.11:
    mov eax,4
    jmp .18
.12:
    sfence
    mov r8,[rdi+0x58]
    mov r9d,[rdi+0x4C]
    cmp r14d,[rsp+0xC]
    jne .13
    test r15d,r15d
    je .13
    mov r10,[rax+rcx]
    mov [r8+r9],r10
    mov r10,[rax+rcx+8]
    mov [r8+r9+8],r10
    mov r10,[rax+rcx+0x10]
    mov [r8+r9+0x10],r10
    mov r10,[rax+rcx+0x18]
    mov [r8+r9+0x18],r10
    mov r10,[rax+rcx+0x20]
    mov [r8+r9+0x20],r10
    mov r10,[rax+rcx+0x28]
    mov [r8+r9+0x28],r10
    mov r10,[rax+rcx+0x30]
    mov [r8+r9+0x30],r10
    mov rax,[rax+rcx+0x38]
    mov [r8+r9+0x38],rax
    cmp byte [rdi+0x49],0
    jne .14
    jmp .15
.13:
    mov [r8+r9],r12
.14:
    sfence
.15:
    mov eax,[rdi+0x50]
    xor [rdi+0x4C],eax
.16:
    mov [rdi+0x20],edx
    mov [rdi+0x24],esi
    mov [rdi+0x28],r11d
    mov [rdi+0x38],edx
.17:
    mov eax,0xB
.18:
    add rsp,0x38
    pop rbx
    pop r12
    pop r13
    pop r14
    pop r15
    pop rbp
    ret
.19:
    mov rbx,rdi
    mov r12,rdx
    mov r14,rcx
    call qword [rel uverbs_mlx5::sq::Sq::disown]
    mov rcx,r14
    mov rdx,r12
    mov rdi,rbx
    mov eax,[rbx+0x20]
    test rcx,rcx
    jne .1
    jmp .17
.20:
    mov rbp,rdi
    mov esi,r14d
    mov ebx,r11d
    mov edx,r11d
    mov ecx,1
    call qword [rel uverbs_mlx5::sq::Sq::make_room]
    mov ecx,eax
    mov eax,edx
    test cl,1
    je .21
    xor esi,esi
    cmp eax,0xB
    mov rdi,rbp
    mov r11d,ebx
    je .3
    jmp .18
.21:
    mov esi,eax
    mov rdi,rbp
    mov r11d,ebx
    jmp .3
