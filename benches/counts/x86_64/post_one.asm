; rustc 1.95.0 (59807616e 2026-04-14)
    push rbp
    push r15
    push r14
    push r13
    push r12
    push rbx
    sub rsp,0x78
    mov r15d,[rdi+0x30]
    cmp r15d,[rdi+0x10]
    jne .12
.1:
    mov r11,0x1FFFFFFFF
    mov rbx,[rdx+8]
    lea rax,[r11+1]
    test ebx,ebx
    mov rcx,0x100000000
    cmovne rcx,rax
    cmp ebx,0x80000001
    mov r12d,0x401
    cmovb r12,rcx
    cmp r12b,1
    jne .2
    shr r12d,8
    mov eax,r12d
    jmp .11
.2:
    mov r10d,[rdi+0x18]
    mov rax,[rdx]
    mov [rsp+0x10],rax
    xor r13d,r13d
    mov r9,r12
    shr r9,0x20
    setne r13b
    lea r14d,[r15+r13]
    mov eax,r14d
    sub eax,[rdi+0x14]
    cmp eax,[rdi+0x20]
    ja .13
    cmp r10d,[rdi+0x1C]
    jns .13
.3:
    mov ebp,[rdi+0x24]
    or ebp,r9d
    movzx eax,r15w
    shl eax,8
    or eax,0xA
    shl rax,0x20
    or rbp,rax
    bswap rbp
    mov ecx,[rdi+8]
    mov edx,ecx
    and edx,r15d
    add r13d,edx
    lea r8d,[rcx+1]
    mov rax,[rdi]
    cmp r13d,r8d
    ja .14
    mov ecx,edx
    shl rcx,6
    mov [rax+rcx],rbp
    mov qword [rax+rcx+8],0x8000000
    test ebx,ebx
    je .4
    mov r8,[rsp+0x10]
    bswap r8
    rol rbx,0x20
    mov rdx,0x7FFFFFFFFFFFFFFF
    and rdx,rbx
    bswap rdx
    mov [rax+rcx+0x10],rdx
    mov [rax+rcx+0x18],r8
.4:
    inc r10d
    mov rax,[rdi+0x58]
    lea ecx,[r14-1]
    mov rdx,[rax+0x100]
    mov r8d,[rax+0x120]
    and r8d,r15d
    shl r8,4
    mov [rdx+r8],rsi
    mov [rdx+r8+8],r14d
    cmp ecx,r15d
    jne .5
    add rdx,r8
    mov [rdx+0xC],r10d
    mov al,7
    cmp r14d,[rdi+0x10]
    jne .6
    jmp .11
.5:
    and ecx,[rax+0x120]
    shl rcx,4
    add rcx,[rax+0x100]
    mov rdx,rcx
    mov [rdx+0xC],r10d
    mov al,7
    cmp r14d,[rdi+0x10]
    je .11
.6:
    mov rcx,[rdi+0x38]
    movzx edx,r14w
    bswap edx
    mov [rcx+4],edx
    cmp qword [rdi+0x40],0
    je .7
    mov rbx,r9
    mov r9d,[rdi+0x10]
    mov rcx,[rdi]
    mov edx,[rdi+8]
    sfence
    mov rsi,[rdi+0x48]
    mov r8d,[rdi+0x50]
    cmp r12,r11
    jbe .8
    cmp r15d,r9d
    jne .8
    shl ebx,4
    cmp ebx,[rdi+0x54]
    ja .8
    and edx,r15d
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
    jmp .9
.7:
    mov rcx,[rdi+0x48]
    mov [rcx],rbp
    jmp .10
.8:
    mov [rsi+r8],rbp
    sfence
.9:
    mov ecx,[rdi+0x54]
    xor [rdi+0x50],ecx
.10:
    mov [rdi+0x10],r14d
    mov [rdi+0x18],r10d
    mov [rdi+0x30],r14d
.11:
    add rsp,0x78
    pop rbx
    pop r12
    pop r13
    pop r14
    pop r15
    pop rbp
    ret
.12:
    mov rbx,rdi
    mov r14,rsi
    mov r15,rdx
    call qword [rel uverbs_mlx5::sq::Sq::disown]
    mov rdx,r15
    mov rsi,r14
    mov rdi,rbx
    mov r15d,[rbx+0x10]
    jmp .1
.13:
    mov [rsp+8],rdi
    mov rdi,[rsp+8]
    mov [rsp+0x18],rsi
    mov esi,r10d
    mov edx,r14d
    mov ebp,r10d
    mov [rsp+0x20],r9
    call qword [rel uverbs_mlx5::sq::Sq::make_room]
    mov r9,[rsp+0x20]
    mov r11,0x1FFFFFFFF
    mov r10d,ebp
    mov rsi,[rsp+0x18]
    mov rdi,[rsp+8]
    cmp al,7
    je .3
    jmp .11
.14:
    mov [rsp+0x28],rbp
    mov qword [rsp+0x30],0x8000000
    mov dword [rsp+0x50],0
    xorps xmm0,xmm0
    movups [rsp+0x60],xmm0
    mov qword [rsp+0x38],2
    mov rdx,[rsp+0x10]
    mov [rsp+0x40],rdx
    mov [rsp+0x48],rbx
    lea rdx,[rsp+0x38]
    mov [rsp],rdx
    lea r8,[rsp+0x28]
    mov rbx,r9
    lea r9,[rsp+0x50]
    mov [rsp+8],rdi
    mov rdi,rax
    mov [rsp+0x18],rsi
    mov esi,ecx
    mov edx,r15d
    mov ecx,ebx
    mov [rsp+0x10],r10d
    mov r13,r11
    call qword [rel uverbs_mlx5::wqe::Ring::write_wrapped]
    mov r9,rbx
    mov r11,r13
    mov r10d,[rsp+0x10]
    mov rsi,[rsp+0x18]
    mov rdi,[rsp+8]
    jmp .4
