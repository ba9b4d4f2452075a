; rustc 1.95.0 (59807616e 2026-04-14)
    push rbp
    push r15
    push r14
    push r13
    push r12
    push rbx
    sub rsp,0x28
    mov r14,r8
    mov r15,rcx
    mov r13,rdx
    mov rbx,rdi
    mov r12d,[rsi+0x40]
    cmp r12d,[rsi+0x20]
    jne .14
.1:
    mov [rsp+0x20],r13
    mov rax,[r15+0x20]
    mov edx,7
    cmp rax,[rsi+0xC8]
    jne .2
    mov edx,5
    cmp r14d,0x80000000
    jbe .3
.2:
    mov [rbx],r15
    mov [rbx+8],r14
    jmp .13
.3:
    mov r11d,[rsi+0x24]
    mov ecx,[rsi+0x28]
    mov rax,r14
    shr rax,0x20
    and eax,0xFFFFFFF
    mov ebp,[r15+0x18]
    mov edx,[r15+0x1C]
    mov [rsp+0x18],rdx
    imul rbp,rax
    add rbp,[r15+0x10]
    cmp r14d,1
    mov r13d,2
    sbb r13d,0
    cmp r11d,ecx
    je .15
.4:
    or r13d,[rsi+0x2C]
    mov rdx,[rsi]
    movzx eax,r12w
    shl rax,0x28
    or rax,r13
    mov rdi,0xA00000000
    or rdi,rax
    bswap rdi
    mov r10,[rsi+8]
    mov r9d,[rsi+0x18]
    and r9d,r12d
    mov r8,r9
    shl r8,6
    mov [rdx+r8],rdi
    mov qword [rdx+r8+8],0x8000000
    test r14d,r14d
    je .5
    bswap rbp
    mov eax,r14d
    and eax,0x7FFFFFFF
    shl rax,0x20
    add rax,[rsp+0x18]
    bswap rax
    mov [rdx+r8+0x10],rax
    mov [rdx+r8+0x18],rbp
.5:
    inc r11d
    lea eax,[r12+1]
    shl r9,4
    mov r13,[rsp+0x20]
    mov [r10+r9],r13
    mov [r10+r9+8],eax
    mov [r10+r9+0xC],r11d
    mov [rsi+0x40],eax
    cmp byte [rsi+0x44],0
    jne .6
    mov byte [rsi+0x44],1
    mov r10,[rsi+0x78]
    mov ebp,r11d
    mov r11d,[r10+0x48]
    test r11d,r11d
    mov r11d,ebp
    jne .6
    mov dword [r10+0x48],1
.6:
    mov r10,[rsi+0x10]
    mov [r10+r9],r15
    mov [r10+r9+8],r14
    cmp dword [rsi+0x48],0
    jne .16
    mov r9,[rsi+0x50]
    movzx r10d,ax
    bswap r10d
    mov [r9+4],r10d
    cmp dword [rsi+0x6C],0
    je .7
    sfence
    test r14d,r14d
    je .8
    mov rdi,[rsi+0x58]
    mov r9d,[rsi+0x68]
    mov r10,[rdx+r8]
    mov [rdi+r9],r10
    mov r10,[rdx+r8+8]
    mov [rdi+r9+8],r10
    mov r10,[rdx+r8+0x10]
    mov [rdi+r9+0x10],r10
    mov r10,[rdx+r8+0x18]
    mov [rdi+r9+0x18],r10
    movaps xmm0,[rdx+r8+0x20]
    movaps [rdi+r9+0x20],xmm0
    movaps xmm0,[rdx+r8+0x30]
    movaps [rdi+r9+0x30],xmm0
    cmp dword [rsi+0x70],0
    jne .10
    jmp .9
.7:
    mov rdx,[rsi+0x58]
    mov r8d,[rsi+0x68]
    mov [rdx+r8],rdi
    jmp .11
.8:
    mov rdx,[rsi+0x58]
    mov r8d,[rsi+0x68]
    mov [rdx+r8],rdi
.9:
    sfence
.10:
    mov edx,[rsi+0x6C]
    xor [rsi+0x68],edx
.11:
    mov [rsi+0x28],ecx
    mov [rsi+0x20],eax
    mov [rsi+0x24],r11d
    mov [rsi+0x40],eax
.12:
    mov edx,0x11
.13:
    mov [rbx+0x10],edx
    mov rax,rbx
    add rsp,0x28
    pop rbx
    pop r12
    pop r13
    pop r14
    pop r15
    pop rbp
    ret
.14:
    mov r12,rsi
    mov rdi,rsi
    call qword [rel uverbs_mlx5::send::queue::Sq::disown]
    mov rsi,r12
    mov r12d,[r12+0x20]
    jmp .1
.15:
    lea rax,[r15+0x10]
    mov [rsp+0x10],rax
    mov [rsp+8],rsi
    mov rdi,rsi
    mov esi,r12d
    mov [rsp+4],r11d
    mov edx,r11d
    mov ecx,1
    call qword [rel uverbs_mlx5::send::queue::room::<impl uverbs_mlx5::send::queue::Sq>::make_room]
    test al,1
    je .17
    mov r11d,[rsp+4]
    mov ecx,r11d
    cmp edx,0x11
    mov rsi,[rsp+8]
    jne .2
    jmp .4
.16:
    mov rdi,rsi
    mov esi,eax
    mov edx,r11d
    mov r8d,r12d
    call qword [rel uverbs_mlx5::send::rekey::<impl uverbs_mlx5::send::queue::Sq>::publish_behind_umr]
    jmp .12
.17:
    mov ecx,edx
    mov rsi,[rsp+8]
    mov r11d,[rsp+4]
    jmp .4
    mov rdi,[rsp+0x10]
    mov rbx,rax
    mov rsi,r14
    call qword [rel uverbs_core::memory::registered::give_back]
    mov rdi,rbx
    call _Unwind_Resume
    mov rbx,rax
    add r15,0x10
    mov rdi,r15
    mov rsi,r14
    call qword [rel uverbs_core::memory::registered::give_back]
    mov rdi,rbx
    call _Unwind_Resume
