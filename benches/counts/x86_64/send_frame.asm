; rustc 1.95.0 (59807616e 2026-04-14)
    push rbp
    push r15
    push r14
    push r13
    push r12
    push rbx
    sub rsp,0x38
    mov r14,r8
    mov r12,rcx
    mov [rsp+0x18],rdx
    mov rbx,rdi
    mov r9d,[rsi+0x40]
    cmp r9d,[rsi+0x20]
    jne .14
    mov rax,[r12+0x20]
    mov edx,7
    cmp rax,[rsi+0xC8]
    jne .2
.1:
    mov edx,5
    cmp r14d,0x80000000
    jbe .3
.2:
    mov [rbx],r12
    mov [rbx+8],r14
    jmp .13
.3:
    mov r8d,[rsi+0x24]
    mov ecx,[rsi+0x28]
    mov rax,r14
    shr rax,0x20
    and eax,0xFFFFFFF
    lea rdx,[r12+0x10]
    mov [rsp+0x20],rdx
    mov ebp,[r12+0x18]
    mov edx,[r12+0x1C]
    mov [rsp+0x10],rdx
    imul rbp,rax
    add rbp,[r12+0x10]
    cmp r14d,1
    mov r15d,2
    sbb r15d,0
    cmp r8d,ecx
    je .15
.4:
    or r15d,[rsi+0x2C]
    mov r10,[rsi]
    movzx eax,r9w
    shl rax,0x28
    or rax,r15
    mov rdi,0xA00000000
    or rdi,rax
    bswap rdi
    mov rax,[rsi+8]
    mov r15d,[rsi+0x18]
    and r15d,r9d
    mov r13,r15
    shl r13,6
    mov [r10+r13],rdi
    mov qword [r10+r13+8],0x8000000
    test r14d,r14d
    je .5
    bswap rbp
    mov edx,r14d
    and edx,0x7FFFFFFF
    shl rdx,0x20
    add rdx,[rsp+0x10]
    bswap rdx
    mov [r10+r13+0x10],rdx
    mov [r10+r13+0x18],rbp
.5:
    inc r8d
    lea ebp,[r9+1]
    shl r15,4
    mov rdx,[rsp+0x18]
    mov [rax+r15],rdx
    mov [rax+r15+8],ebp
    mov [rax+r15+0xC],r8d
    mov [rsi+0x40],ebp
    cmp byte [rsi+0x44],0
    je .16
.6:
    mov rax,[rsi+0x10]
    mov [rax+r15],r12
    mov [rax+r15+8],r14
    cmp dword [rsi+0x48],0
    jne .17
    mov rax,[rsi+0x50]
    movzx edx,bp
    bswap edx
    mov [rax+4],edx
    cmp dword [rsi+0x6C],0
    je .7
    sfence
    test r14d,r14d
    je .8
    mov rax,[rsi+0x58]
    mov edi,[rsi+0x68]
    mov rdx,[r10+r13]
    mov [rax+rdi],rdx
    mov rdx,[r10+r13+8]
    mov [rax+rdi+8],rdx
    mov rdx,[r10+r13+0x10]
    mov [rax+rdi+0x10],rdx
    mov rdx,[r10+r13+0x18]
    mov [rax+rdi+0x18],rdx
    movaps xmm0,[r10+r13+0x20]
    movaps [rax+rdi+0x20],xmm0
    movaps xmm0,[r10+r13+0x30]
    movaps [rax+rdi+0x30],xmm0
    cmp dword [rsi+0x70],0
    jne .10
    jmp .9
.7:
    mov rax,[rsi+0x58]
    mov edx,[rsi+0x68]
    mov [rax+rdx],rdi
    jmp .11
.8:
    mov rax,[rsi+0x58]
    mov edx,[rsi+0x68]
    mov [rax+rdx],rdi
.9:
    sfence
.10:
    mov eax,[rsi+0x6C]
    xor [rsi+0x68],eax
.11:
    mov [rsi+0x28],ecx
    mov [rsi+0x20],ebp
    mov [rsi+0x24],r8d
    mov [rsi+0x40],ebp
.12:
    mov edx,0x11
.13:
    mov [rbx+0x10],edx
    mov rax,rbx
    add rsp,0x38
    pop rbx
    pop r12
    pop r13
    pop r14
    pop r15
    pop rbp
    ret
.14:
    mov r15,rsi
    mov rdi,rsi
    call qword [rel uverbs_mlx5::send::queue::Sq::disown]
    mov rsi,r15
    mov r9d,[r15+0x20]
    mov rax,[r12+0x20]
    mov edx,7
    cmp rax,[rsi+0xC8]
    je .1
    jmp .2
.15:
    mov [rsp+8],rsi
    mov rdi,rsi
    mov [rsp],r9
    mov esi,r9d
    mov r13d,r8d
    mov edx,r8d
    mov ecx,1
    call qword [rel uverbs_mlx5::send::queue::room::<impl uverbs_mlx5::send::queue::Sq>::make_room]
    test al,1
    je .18
    mov r8d,r13d
    mov ecx,r13d
    cmp edx,0x11
    mov rsi,[rsp+8]
    mov r9,[rsp]
    jne .2
    jmp .4
.16:
    mov byte [rsi+0x44],1
    mov [rsp+0x28],rdi
    mov rdi,[rsi+0x78]
    add rdi,0x40
    mov [rsp+8],rsi
    mov [rsp+0x18],r8d
    mov [rsp+0x10],ecx
    mov [rsp],r9
    mov [rsp+0x30],r10
    call qword [rel uverbs_core::queues::slots::SlotTable::will_own]
    mov rdi,[rsp+0x28]
    mov r10,[rsp+0x30]
    mov r9,[rsp]
    mov ecx,[rsp+0x10]
    mov r8d,[rsp+0x18]
    mov rsi,[rsp+8]
    jmp .6
.17:
    mov rdi,rsi
    mov esi,ebp
    mov edx,r8d
    mov r8d,r9d
    call qword [rel uverbs_mlx5::send::rekey::<impl uverbs_mlx5::send::queue::Sq>::publish_behind_umr]
    jmp .12
.18:
    mov ecx,edx
    mov rsi,[rsp+8]
    mov r8d,r13d
    mov r9,[rsp]
    jmp .4
    jmp .19
.19:
    mov rbx,rax
    jmp .20
    mov rbx,rax
    add r12,0x10
    mov [rsp+0x20],r12
.20:
    mov rdi,[rsp+0x20]
    mov rsi,r14
    call qword [rel uverbs_core::memory::registered::give_back]
    mov rdi,rbx
    call _Unwind_Resume
