; rustc 1.95.0 (59807616e 2026-04-14)
    push rbp
    push r15
    push r14
    push r13
    push r12
    push rbx
    sub rsp,0x38
    mov r14,rcx
    mov [rsp+0x20],rdx
    mov eax,[rdi+0x40]
    cmp eax,[rdi+0x20]
    jne .19
    test r14,r14
    je .17
.1:
    mov ecx,[rdi+0x24]
    mov r11d,[rdi+0x28]
    mov r8,r14
    shl r8,4
    cmp r14,1
    mov [rsp+0x14],eax
    mov [rsp+0x28],r8
    jne .5
    mov r14d,eax
.2:
    mov rax,[rsp+0x20]
    add rax,[rsp+0x28]
    mov rdx,rax
    mov r15,[rax-8]
    mov eax,5
    cmp r15d,0x80000000
    ja .18
    mov r13,[rdx-0x10]
    cmp r15d,1
    mov r12d,1
    sbb r12d,0xFFFFFFFF
    test ecx,ecx
    je .20
    dec ecx
.3:
    or r12d,[rdi+0x2C]
    mov rdx,[rdi]
    movzx eax,r14w
    shl eax,8
    or eax,0xA
    shl rax,0x20
    or r12,rax
    bswap r12
    mov r9,[rdi+8]
    mov r10d,[rdi+0x18]
    and r10d,r14d
    mov r8,r10
    shl r8,6
    mov [rdx+r8],r12
    mov qword [rdx+r8+8],0x8000000
    test r15d,r15d
    je .4
    bswap r13
    mov eax,0xFFFFFFFF
    mov ebx,r11d
    mov r11,0x7FFFFFFF00000000
    or r11,rax
    mov rax,r15
    rol rax,0x20
    and rax,r11
    mov r11d,ebx
    bswap rax
    mov [rdx+r8+0x10],rax
    mov [rdx+r8+0x18],r13
.4:
    inc r11d
    lea eax,[r14+1]
    shl r10,4
    mov [r9+r10],rsi
    mov [r9+r10+8],eax
    mov [r9+r10+0xC],r11d
    cmp eax,[rsp+0x14]
    je .17
    cmp dword [rdi+0x48],0
    jne .22
    mov rsi,[rdi+0x50]
    movzx r9d,ax
    bswap r9d
    mov [rsi+4],r9d
    cmp byte [rdi+0x58],1
    jne .12
    mov rdx,[rdi+0x60]
    mov [rdx],r12
    jmp .16
.5:
    mov r13,[rsp+0x20]
    add r8,r13
    add r8,0xFFFFFFFFFFFFFFF0
    mov [rsp+0x30],r8
    mov ebp,eax
    shl ebp,8
    mov r14d,eax
    jmp .7
.6:
    inc r11d
    inc r14d
    shl r8,4
    mov [rax+r8],rsi
    mov [rax+r8+8],r14d
    mov [rax+r8+0xC],r11d
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
    test ecx,ecx
    je .9
    dec ecx
.8:
    mov r9,[rdi]
    mov rax,[rdi+8]
    mov r8d,[rdi+0x18]
    and r8d,r14d
    mov r10d,ebp
    and r10d,0xFFFF00
    or r10d,0xA
    shl r10,0x20
    or ebx,[rdi+0x2C]
    or rbx,r10
    bswap rbx
    mov r10,r8
    shl r10,6
    mov [r9+r10],rbx
    mov qword [r9+r10+8],0
    test r15d,r15d
    je .6
    mov ebx,r11d
    mov r11,r15
    bswap r12
    shr r11,0x20
    shl r15,0x20
    mov rdx,r14
    mov r14,r12
    mov r12,0x7FFFFFFF00000000
    and r15,r12
    or r15,r11
    mov r11d,ebx
    bswap r15
    mov [r9+r10+0x10],r15
    mov [r9+r10+0x18],r14
    mov r14,rdx
    jmp .6
.9:
    mov [rsp+8],rsi
    mov [rsp+0x18],rdi
    mov esi,r14d
    mov [rsp+0x10],r11d
    mov edx,r11d
    mov ecx,1
    call qword [rel uverbs_mlx5::sq::room::<impl uverbs_mlx5::sq::Sq>::make_room]
    mov ecx,eax
    mov eax,edx
    test cl,1
    je .10
    xor ecx,ecx
    cmp eax,0x11
    mov rdi,[rsp+0x18]
    mov rsi,[rsp+8]
    mov r11d,[rsp+0x10]
    je .8
    jmp .18
.10:
    mov ecx,eax
    mov rdi,[rsp+0x18]
    mov rsi,[rsp+8]
    mov r11d,[rsp+0x10]
    jmp .8
.11:
    mov eax,5
    jmp .18
.12:
    sfence
    mov rsi,[rdi+0x68]
    mov r9d,[rdi+0x5C]
    cmp r14d,[rsp+0x14]
    jne .13
    test r15d,r15d
    je .13
    mov r10,[rdx+r8]
    mov [rsi+r9],r10
    mov r10,[rdx+r8+8]
    mov [rsi+r9+8],r10
    mov r10,[rdx+r8+0x10]
    mov [rsi+r9+0x10],r10
    mov r10,[rdx+r8+0x18]
    mov [rsi+r9+0x18],r10
    mov r10,[rdx+r8+0x20]
    mov [rsi+r9+0x20],r10
    mov r10,[rdx+r8+0x28]
    mov [rsi+r9+0x28],r10
    mov r10,[rdx+r8+0x30]
    mov [rsi+r9+0x30],r10
    mov rdx,[rdx+r8+0x38]
    mov [rsi+r9+0x38],rdx
    cmp byte [rdi+0x59],0
    jne .14
    jmp .15
.13:
    mov [rsi+r9],r12
.14:
    sfence
.15:
    mov edx,[rdi+0x60]
    xor [rdi+0x5C],edx
.16:
    mov [rdi+0x20],eax
    mov [rdi+0x24],ecx
    mov [rdi+0x28],r11d
    mov [rdi+0x40],eax
.17:
    mov eax,0x11
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
    mov r15,rsi
    call qword [rel uverbs_mlx5::sq::Sq::disown]
    mov rsi,r15
    mov rdi,rbx
    mov eax,[rbx+0x20]
    test r14,r14
    jne .1
    jmp .17
.20:
    mov [rsp+8],rsi
    mov rbp,rdi
    mov esi,r14d
    mov ebx,r11d
    mov edx,r11d
    mov ecx,1
    call qword [rel uverbs_mlx5::sq::room::<impl uverbs_mlx5::sq::Sq>::make_room]
    mov ecx,eax
    mov eax,edx
    test cl,1
    je .21
    xor ecx,ecx
    cmp eax,0x11
    mov rdi,rbp
    mov rsi,[rsp+8]
    mov r11d,ebx
    je .3
    jmp .18
.21:
    mov ecx,eax
    mov rdi,rbp
    mov rsi,[rsp+8]
    mov r11d,ebx
    jmp .3
.22:
    mov esi,eax
    mov edx,r11d
    mov r8d,r14d
    call qword [rel uverbs_mlx5::rekey::<impl uverbs_mlx5::sq::Sq>::publish_behind_umr]
    jmp .17
