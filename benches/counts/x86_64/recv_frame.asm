; rustc 1.95.0 (59807616e 2026-04-14)
    push rbp
    push r15
    push r14
    push r13
    push r12
    push rbx
    sub rsp,0x28
    mov r13,r8
    mov r14,rcx
    mov r12,rdx
    mov rbx,rdi
    mov ebp,[rsi+0x30]
    cmp ebp,[rsi+0x24]
    jne .8
    mov rax,[r14+0x20]
    mov edx,7
    cmp rax,[rsi+0x80]
    jne .9
.1:
    mov [rsp+8],r12
    mov r12d,[r14+0x18]
    mov r15,0xFFFFFFFF00000000
    and r15,r13
    or r15,r12
    cmp dword [rsi+0x2C],0
    je .6
    mov edx,5
    cmp r12d,0x80000000
    ja .10
    mov edx,[rsi+0x28]
    mov eax,[r14+0x1C]
    mov [rsp+0x20],rax
    shr r13,0x20
    and r13d,0xFFFFFFF
    imul r13,r12
    add r13,[r14+0x10]
    test edx,edx
    je .12
    dec edx
.2:
    mov edi,[rsi+0x20]
    mov eax,[rsi+0x18]
    and eax,ebp
    mov r8,rax
    imul r8,rdi
    add r8,[rsi]
    mov rcx,[rsi+8]
    test r12,r12
    je .7
    and r12d,0x7FFFFFFF
    bswap r13
    shl r12,0x20
    add r12,[rsp+0x20]
    bswap r12
    mov [r8],r12
    mov [r8+8],r13
    add r8,0x10
    mov r9d,0x10
    mov r10,[rsp+8]
    cmp r9d,edi
    jae .4
.3:
    movups xmm0,[rel .rodata]
    movups [r8],xmm0
.4:
    inc ebp
    shl rax,4
    mov [rcx+rax],r10
    mov [rcx+rax+8],ebp
    mov [rsi+0x30],ebp
    cmp byte [rsi+0x34],0
    jne .5
    mov byte [rsi+0x34],1
    mov rcx,[rsi+0x40]
    mov edi,[rcx+0x84]
    test edi,edi
    jne .5
    mov dword [rcx+0x84],1
.5:
    mov rcx,[rsi+0x10]
    mov [rcx+rax],r14
    mov [rcx+rax+8],r15
    mov rax,[rsi+0x38]
    movzx ecx,bp
    bswap ecx
    mov [rax],ecx
    mov [rsi+0x24],ebp
    mov [rsi+0x28],edx
    mov [rsi+0x30],ebp
    mov eax,0xC
    jmp .11
.6:
    mov edx,3
    jmp .10
.7:
    xor r9d,r9d
    mov r10,[rsp+8]
    cmp r9d,edi
    jb .3
    jmp .4
.8:
    mov r15,rsi
    mov rdi,rsi
    call qword [rel uverbs_mlx5::rq::Rq::disown]
    mov rsi,r15
    mov ebp,[r15+0x24]
    mov rax,[r14+0x20]
    mov edx,7
    cmp rax,[rsi+0x80]
    je .1
.9:
    mov r15,r13
.10:
    mov [rbx],r14
    mov [rbx+8],r15
    mov eax,edx
.11:
    mov [rbx+0x10],eax
    mov rax,rbx
    add rsp,0x28
    pop rbx
    pop r12
    pop r13
    pop r14
    pop r15
    pop rbp
    ret
.12:
    lea rax,[r14+0x10]
    mov [rsp+0x10],rax
    mov [rsp+0x18],rsi
    mov rdi,rsi
    mov esi,ebp
    call qword [rel uverbs_mlx5::rq::Rq::make_room]
    test al,1
    je .13
    mov eax,0xC
    cmp edx,0xC
    jne .10
    jmp .11
.13:
    mov rsi,[rsp+0x18]
    jmp .2
    mov rbx,rax
    mov rdi,[rsp+0x10]
    mov rsi,r15
    call qword [rel uverbs_core::memory::registered::give_back]
    mov rdi,rbx
    call _Unwind_Resume
    mov rbx,rax
    add r14,0x10
    mov rdi,r14
    mov rsi,r13
    call qword [rel uverbs_core::memory::registered::give_back]
    mov rdi,rbx
    call _Unwind_Resume
