; rustc 1.95.0 (59807616e 2026-04-14)
    push rbp
    push r15
    push r14
    push r13
    push r12
    push rbx
    sub rsp,0x38
    mov r10,[rdi+0x20]
    cmp [rdi+0x40],r10d
    jne .20
    mov eax,0x11
    test rcx,rcx
    je .19
.1:
    mov r11d,[rdi+0x28]
    mov rax,rcx
    shl rax,4
    cmp rcx,1
    mov [rsp+0x28],rax
    jne .5
    mov r14,r10
.2:
    add rdx,[rsp+0x28]
    mov r15,[rdx-8]
    mov eax,5
    cmp r15d,0x80000000
    ja .19
    cmp r15d,1
    mov r13d,1
    sbb r13d,0xFFFFFFFF
    mov r12,[rdx-0x10]
    mov rax,r14
    shr rax,0x20
    cmp r11d,eax
    je .21
    mov rcx,r14
.3:
    mov r8,[rdi]
    mov rdx,[rdi+8]
    or r13d,[rdi+0x2C]
    movzx eax,r14w
    shl rax,0x28
    or rax,r13
    mov r9,0xA00000000
    or r9,rax
    bswap r9
    mov eax,[rdi+0x18]
    and eax,r14d
    shl eax,4
    mov [r8+rax*4],r9
    mov qword [r8+rax*4+8],0x8000000
    test r15d,r15d
    je .4
    bswap r12
    mov r9d,0xFFFFFFFF
    mov rbx,r10
    mov r10,0x7FFFFFFF00000000
    or r10,r9
    mov r9,r15
    rol r9,0x20
    and r9,r10
    mov r10,rbx
    bswap r9
    mov [r8+rax*4+0x10],r9
    mov [r8+rax*4+0x18],r12
.4:
    mov r8,0x100000001
    add rcx,r8
    mov [rdx+rax],rsi
    mov [rdx+rax+8],rcx
    cmp dword [rdi+0x48],0
    jne .22
    mov rdx,[rdi+0x50]
    movzx esi,cx
    bswap esi
    mov [rdx+4],esi
    mov rdx,[rdi]
    cmp dword [rdi+0x6C],0
    je .13
    sfence
    cmp r10w,r14w
    jne .14
    test r15d,r15d
    je .14
    mov rsi,[rdi+0x58]
    mov r8d,[rdi+0x68]
    mov r9,[rdx+rax*4]
    mov [rsi+r8],r9
    mov r9,[rdx+rax*4+8]
    mov [rsi+r8+8],r9
    mov r9,[rdx+rax*4+0x10]
    mov [rsi+r8+0x10],r9
    mov r9,[rdx+rax*4+0x18]
    mov [rsi+r8+0x18],r9
    movaps xmm0,[rdx+rax*4+0x20]
    movaps [rsi+r8+0x20],xmm0
    movaps xmm0,[rdx+rax*4+0x30]
    movaps [rsi+r8+0x30],xmm0
    cmp dword [rdi+0x70],0
    jne .16
    jmp .15
.5:
    add rax,rdx
    add rax,0xFFFFFFFFFFFFFFF0
    mov [rsp+0x30],rax
    mov r12,rdx
    mov r15,r10
    jmp .7
.6:
    mov rcx,0x100000001
    add r14,rcx
    mov [rax+r8],rsi
    mov [rax+r8+8],r14
    add r12,0x10
    mov r15,r14
    cmp r12,[rsp+0x30]
    je .2
.7:
    mov r13,[r12+8]
    cmp r13d,0x80000000
    ja .12
    cmp r13d,1
    mov ebx,2
    sbb ebx,0
    mov rbp,[r12]
    mov rax,r15
    shr rax,0x20
    cmp r11d,eax
    je .9
    mov r14,r15
.8:
    mov rcx,[rdi]
    mov rax,[rdi+8]
    or ebx,[rdi+0x2C]
    mov r9,r15
    shl r9,0x28
    mov r8,0xFFFF0000000000
    and r9,r8
    or r9,rbx
    mov r8,0xA00000000
    or r9,r8
    bswap r9
    mov r8d,[rdi+0x18]
    and r8d,r15d
    shl r8d,4
    mov [rcx+r8*4],r9
    mov qword [rcx+r8*4+8],0
    test r13d,r13d
    je .6
    mov r9,r13
    bswap rbp
    shr r9,0x20
    shl r13,0x20
    mov rbx,0x7FFFFFFF00000000
    and r13,rbx
    or r13,r9
    bswap r13
    mov [rcx+r8*4+0x10],r13
    mov [rcx+r8*4+0x18],rbp
    jmp .6
.9:
    mov [rsp],r10
    mov [rsp+0x18],rdx
    mov [rsp+8],rsi
    mov [rsp+0x20],rdi
    mov esi,r15d
    mov [rsp+0x14],r11d
    mov edx,r11d
    mov ecx,1
    call qword [rel uverbs_mlx5::send::queue::room::<impl uverbs_mlx5::send::queue::Sq>::make_room]
    mov ecx,eax
    mov eax,edx
    test cl,1
    je .10
    mov r14,r15
    cmp eax,0x11
    mov rdi,[rsp+0x20]
    mov rsi,[rsp+8]
    mov rdx,[rsp+0x18]
    mov r11d,[rsp+0x14]
    mov r10,[rsp]
    je .8
    jmp .19
.10:
    mov r14,0xFFFFFFFF00000000
    cmp r15d,0xFFFFFFFF
    mov rsi,[rsp+8]
    mov rdx,[rsp+0x18]
    mov r10,[rsp]
    je .11
    xor r14d,r14d
.11:
    add r14,r15
    mov r11d,eax
    mov rdi,[rsp+0x20]
    jmp .8
.12:
    mov eax,5
    jmp .19
.13:
    mov rax,[rdx+rax*4]
    mov rdx,[rdi+0x58]
    mov esi,[rdi+0x68]
    mov [rdx+rsi],rax
    jmp .17
.14:
    mov rax,[rdx+rax*4]
    mov rdx,[rdi+0x58]
    mov esi,[rdi+0x68]
    mov [rdx+rsi],rax
.15:
    sfence
.16:
    mov eax,[rdi+0x6C]
    xor [rdi+0x68],eax
.17:
    mov [rdi+0x28],r11d
    mov [rdi+0x20],rcx
    mov [rdi+0x40],ecx
.18:
    mov eax,0x11
.19:
    add rsp,0x38
    pop rbx
    pop r12
    pop r13
    pop r14
    pop r15
    pop rbp
    ret
.20:
    mov rbx,rdi
    mov r15,rsi
    mov r12,rdx
    mov r14,rcx
    call qword [rel uverbs_mlx5::send::queue::Sq::disown]
    mov rcx,r14
    mov rdx,r12
    mov rsi,r15
    mov rdi,rbx
    mov r10,[rbx+0x20]
    mov eax,0x11
    test rcx,rcx
    jne .1
    jmp .19
.21:
    mov [rsp],r10
    mov [rsp+8],rsi
    mov rbp,rdi
    mov esi,r14d
    mov ebx,r11d
    mov edx,r11d
    mov ecx,1
    call qword [rel uverbs_mlx5::send::queue::room::<impl uverbs_mlx5::send::queue::Sq>::make_room]
    mov ecx,eax
    mov eax,edx
    test cl,1
    je .23
    mov rcx,r14
    cmp eax,0x11
    mov rdi,rbp
    mov rsi,[rsp+8]
    mov r11d,ebx
    mov r10,[rsp]
    je .3
    jmp .19
.22:
    mov rsi,rcx
    mov edx,r11d
    mov ecx,1
    call qword [rel uverbs_mlx5::send::rekey::<impl uverbs_mlx5::send::queue::Sq>::publish_behind_umr]
    jmp .18
.23:
    cmp r14d,0xFFFFFFFF
    je .25
    xor ecx,ecx
.24:
    add rcx,r14
    mov r11d,eax
    mov rdi,rbp
    mov rsi,[rsp+8]
    mov r10,[rsp]
    jmp .3
.25:
    mov rcx,0xFFFFFFFF00000000
    jmp .24
