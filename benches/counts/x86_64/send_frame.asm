; rustc 1.95.0 (59807616e 2026-04-14)
    push rbp
    push r15
    push r14
    push r13
    push r12
    push rbx
    sub rsp,0xA8
    mov r15,r8
    mov r13,rcx
    mov [rsp+0x50],rdx
    mov rbx,rdi
    mov r14d,[rsi+0x30]
    cmp r14d,[rsi+0x10]
    jne .14
    mov rcx,[r13+0x20]
    mov al,6
    cmp rcx,[rsi+0x80]
    jne .2
.1:
    mov rax,0x1FFFFFFFF
    inc rax
    test r15d,r15d
    mov rcx,0x100000000
    cmovne rcx,rax
    cmp r15d,0x80000001
    mov eax,0x401
    cmovb rax,rcx
    cmp al,1
    jne .4
    shr eax,8
.2:
    mov [rbx],r13
    mov [rbx+8],r15
.3:
    mov [rbx+0x10],al
    mov rax,rbx
    add rsp,0xA8
    pop rbx
    pop r12
    pop r13
    pop r14
    pop r15
    pop rbp
    ret
.4:
    mov r10d,[rsi+0x18]
    mov rcx,r15
    shr rcx,0x20
    mov ebp,[r13+0x18]
    mov [rsp+0x40],rcx
    imul rbp,rcx
    add rbp,[r13+0x10]
    lea rcx,[r13+0x10]
    mov [rsp+0x38],rcx
    mov ecx,[r13+0x1C]
    mov [rsp+0x30],rcx
    xor r12d,r12d
    mov [rsp+0x48],rax
    shr rax,0x20
    mov [rsp+0x28],rax
    setne r12b
    lea edx,[r14+r12]
    mov eax,edx
    sub eax,[rsi+0x14]
    cmp eax,[rsi+0x20]
    ja .15
    cmp r10d,[rsi+0x1C]
    jns .15
.5:
    mov r11d,[rsi+0x24]
    or r11d,[rsp+0x28]
    movzx eax,r14w
    shl eax,8
    or eax,0xA
    shl rax,0x20
    or r11,rax
    bswap r11
    mov ecx,r15d
    mov eax,[rsi+8]
    mov r9d,eax
    and r9d,r14d
    add r12d,r9d
    lea r8d,[rax+1]
    mov rdi,[rsi]
    cmp r12d,r8d
    ja .16
    mov eax,r9d
    shl rax,6
    mov [rdi+rax],r11
    mov qword [rdi+rax+8],0x8000000
    test rcx,rcx
    je .6
    bswap rbp
    mov ecx,r15d
    and ecx,0x7FFFFFFF
    shl rcx,0x20
    add rcx,[rsp+0x30]
    bswap rcx
    mov [rdi+rax+0x10],rcx
    mov [rdi+rax+0x18],rbp
.6:
    inc r10d
    mov rax,[rsi+0x58]
    lea ecx,[rdx-1]
    mov r8,[rax+0x100]
    mov edi,[rax+0x120]
    and edi,r14d
    shl rdi,4
    mov r9,[rsp+0x50]
    mov [r8+rdi],r9
    mov [r8+rdi+8],edx
    cmp ecx,r14d
    jne .7
    add r8,rdi
    jmp .8
.7:
    and ecx,[rax+0x120]
    shl rcx,4
    add rcx,[rax+0x100]
    mov r8,rcx
.8:
    mov [r8+0xC],r10d
    lea eax,[r14+1]
    mov [rsi+0x30],eax
    mov rax,[rsi+0x58]
    mov rcx,[rax+0x110]
    mov edi,[rax+0x120]
    and edi,r14d
    shl rdi,4
    mov [rcx+rdi],r13
    mov [rcx+rdi+8],r15
    movzx ecx,byte [rax+0x124]
    test cl,cl
    jne .9
    mov byte [rax+0x124],1
.9:
    mov al,7
    cmp edx,[rsi+0x10]
    je .3
    mov rcx,[rsi+0x38]
    movzx edi,dx
    bswap edi
    mov [rcx+4],edi
    cmp qword [rsi+0x40],0
    je .10
    mov r12,r11
    mov r9d,[rsi+0x10]
    mov rcx,[rsi]
    mov r11d,[rsi+8]
    sfence
    mov rdi,[rsi+0x48]
    mov r8d,[rsi+0x50]
    mov r15,0x1FFFFFFFF
    cmp [rsp+0x48],r15
    jbe .11
    cmp r14d,r9d
    jne .11
    mov r9,[rsp+0x28]
    shl r9d,4
    cmp r9d,[rsi+0x54]
    ja .11
    and r11d,r14d
    shl r11,6
    mov r9,[rcx+r11]
    mov [rdi+r8],r9
    mov r9,[rcx+r11+8]
    mov [rdi+r8+8],r9
    mov r9,[rcx+r11+0x10]
    mov [rdi+r8+0x10],r9
    mov r9,[rcx+r11+0x18]
    mov [rdi+r8+0x18],r9
    mov r9,[rcx+r11+0x20]
    mov [rdi+r8+0x20],r9
    mov r9,[rcx+r11+0x28]
    mov [rdi+r8+0x28],r9
    mov r9,[rcx+r11+0x30]
    mov [rdi+r8+0x30],r9
    mov rcx,[rcx+r11+0x38]
    mov [rdi+r8+0x38],rcx
    jmp .12
.10:
    mov rcx,[rsi+0x48]
    mov [rcx],r11
    jmp .13
.11:
    mov [rdi+r8],r12
    sfence
.12:
    mov ecx,[rsi+0x54]
    xor [rsi+0x50],ecx
.13:
    mov [rsi+0x10],edx
    mov [rsi+0x18],r10d
    mov [rsi+0x30],edx
    jmp .3
.14:
    mov r14,rsi
    mov rdi,rsi
    call qword [rel uverbs_mlx5::sq::Sq::disown]
    mov rsi,r14
    mov r14d,[r14+0x10]
    mov rcx,[r13+0x20]
    mov al,6
    cmp rcx,[rsi+0x80]
    je .1
    jmp .2
.15:
    mov [rsp+0x20],rsi
    mov rdi,rsi
    mov [rsp+0x14],r10d
    mov esi,r10d
    mov [rsp+0x18],rdx
    call qword [rel uverbs_mlx5::sq::Sq::make_room]
    cmp al,7
    mov rsi,[rsp+0x20]
    mov r10d,[rsp+0x14]
    mov rdx,[rsp+0x18]
    jne .2
    jmp .5
.16:
    mov [rsp+0x18],rdx
    mov [rsp+0x14],r10d
    mov [rsp+0x20],rsi
    mov rdx,[rsp+0x30]
    shl rdx,0x20
    or rdx,rcx
    mov r12,r11
    mov [rsp+0x58],r11
    mov qword [rsp+0x60],0x8000000
    mov dword [rsp+0x80],0
    xorps xmm0,xmm0
    movups [rsp+0x90],xmm0
    mov qword [rsp+0x68],2
    mov [rsp+0x70],rbp
    mov [rsp+0x78],rdx
    lea rcx,[rsp+0x68]
    mov [rsp],rcx
    lea r8,[rsp+0x58]
    lea r9,[rsp+0x80]
    mov esi,eax
    mov edx,r14d
    mov rcx,[rsp+0x28]
    call qword [rel uverbs_mlx5::wqe::Ring::write_wrapped]
    mov rsi,[rsp+0x20]
    mov r10d,[rsp+0x14]
    mov rdx,[rsp+0x18]
    mov r11,r12
    jmp .6
    mov rbx,rax
    mov rdi,[rsp+0x38]
    mov rsi,[rsp+0x40]
    call qword [rel uverbs_core::frame::give_back]
    mov rdi,rbx
    call _Unwind_Resume
    mov rbx,rax
    add r13,0x10
    shr r15,0x20
    mov rdi,r13
    mov esi,r15d
    call qword [rel uverbs_core::frame::give_back]
    mov rdi,rbx
    call _Unwind_Resume
