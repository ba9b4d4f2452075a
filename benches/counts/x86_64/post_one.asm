; rustc 1.95.0 (59807616e 2026-04-14)
    push rbp
    push r15
    push r14
    push r13
    push r12
    push rbx
    sub rsp,0x18
    mov r14,rsi
    mov ebx,[rdi+0x40]
    mov r13,[rdi+0x20]
    cmp ebx,r13d
    jne .11
    mov r15,[rdx+8]
    mov eax,5
    cmp r15d,0x80000000
    ja .10
.1:
    mov r9d,[rdi+0x28]
    cmp r15d,1
    mov ebp,2
    sbb ebp,0
    mov r12,[rdx]
    mov rax,r13
    shr rax,0x20
    cmp r9d,eax
    je .12
    mov rsi,r13
.2:
    mov rcx,[rdi]
    mov rax,[rdi+8]
    or ebp,[rdi+0x2C]
    movzx edx,r13w
    shl rdx,0x28
    or rdx,rbp
    mov r8,0xA00000000
    or r8,rdx
    bswap r8
    and ebx,[rdi+0x18]
    shl ebx,4
    mov [rcx+rbx*4],r8
    mov qword [rcx+rbx*4+8],0x8000000
    test r15d,r15d
    je .3
    bswap r12
    mov rdx,r15
    rol rdx,0x20
    mov r8,0x7FFFFFFFFFFFFFFF
    and r8,rdx
    bswap r8
    mov [rcx+rbx*4+0x10],r8
    mov [rcx+rbx*4+0x18],r12
.3:
    mov rcx,0x100000001
    add rsi,rcx
    mov [rax+rbx],r14
    mov [rax+rbx+8],rsi
    cmp dword [rdi+0x48],0
    jne .13
    mov rax,[rdi+0x50]
    movzx ecx,si
    bswap ecx
    mov [rax+4],ecx
    mov rax,[rdi]
    cmp dword [rdi+0x6C],0
    je .4
    sfence
    test r15d,r15d
    je .5
    mov rcx,[rdi+0x58]
    mov edx,[rdi+0x68]
    mov r8,[rax+rbx*4]
    mov [rcx+rdx],r8
    mov r8,[rax+rbx*4+8]
    mov [rcx+rdx+8],r8
    mov r8,[rax+rbx*4+0x10]
    mov [rcx+rdx+0x10],r8
    mov r8,[rax+rbx*4+0x18]
    mov [rcx+rdx+0x18],r8
    movaps xmm0,[rax+rbx*4+0x20]
    movaps [rcx+rdx+0x20],xmm0
    movaps xmm0,[rax+rbx*4+0x30]
    movaps [rcx+rdx+0x30],xmm0
    cmp dword [rdi+0x70],0
    jne .7
    jmp .6
.4:
    mov rax,[rax+rbx*4]
    mov rcx,[rdi+0x58]
    mov edx,[rdi+0x68]
    mov [rcx+rdx],rax
    jmp .8
.5:
    mov rax,[rax+rbx*4]
    mov rcx,[rdi+0x58]
    mov edx,[rdi+0x68]
    mov [rcx+rdx],rax
.6:
    sfence
.7:
    mov eax,[rdi+0x6C]
    xor [rdi+0x68],eax
.8:
    mov [rdi+0x28],r9d
    mov [rdi+0x20],rsi
    mov [rdi+0x40],esi
.9:
    mov eax,0x11
.10:
    add rsp,0x18
    pop rbx
    pop r12
    pop r13
    pop r14
    pop r15
    pop rbp
    ret
.11:
    mov rbx,rdi
    mov r15,rdx
    call qword [rel uverbs_mlx5::send::queue::Sq::disown]
    mov rdx,r15
    mov rdi,rbx
    mov rbx,[rbx+0x20]
    mov r13,rbx
    mov r15,[rdx+8]
    mov eax,5
    cmp r15d,0x80000000
    jbe .1
    jmp .10
.12:
    mov [rsp+8],rdi
    mov esi,ebx
    mov [rsp+0x14],r9d
    mov edx,r9d
    mov ecx,1
    call qword [rel uverbs_mlx5::send::queue::room::<impl uverbs_mlx5::send::queue::Sq>::make_room]
    mov ecx,eax
    mov eax,edx
    test cl,1
    je .14
    mov rsi,r13
    cmp eax,0x11
    mov rdi,[rsp+8]
    mov r9d,[rsp+0x14]
    je .2
    jmp .10
.13:
    mov edx,r9d
    mov ecx,1
    call qword [rel uverbs_mlx5::send::rekey::<impl uverbs_mlx5::send::queue::Sq>::publish_behind_umr]
    jmp .9
.14:
    cmp ebx,0xFFFFFFFF
    je .16
    xor esi,esi
.15:
    mov rdi,[rsp+8]
    add rsi,r13
    mov r9d,eax
    jmp .2
.16:
    mov rsi,0xFFFFFFFF00000000
    jmp .15
