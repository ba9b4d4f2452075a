; rustc 1.95.0 (59807616e 2026-04-14)
    push rbp
    push r15
    push r14
    push r13
    push r12
    push rbx
    sub rsp,0x28
    mov ebx,[rdi+0x30]
    mov r13d,[rdi+0x3C]
    cmp ebx,r13d
    je .11
    mov r14,[rdi]
    mov r9,[rdi+8]
    mov r12,[rdi+0x10]
    mov ebp,[rdi+0x18]
    mov r8d,[rdi+0x1C]
    mov r15d,[rdi+0x20]
    mov rsi,[rdi+0x28]
    movq xmm0,[rdi+0x34]
    cmp rsi,0xFFFFFFFFFFFFFFFF
    jne .12
.1:
    mov rax,[r14+0x40]
    movzx ecx,bx
    bswap ecx
    mov [rax+4],ecx
    movzx eax,byte [r14+0x48]
    cmp al,1
    jne .2
    mov rax,[r14+0x50]
    mov [rax],r9
    jmp .10
.2:
    mov rax,[r14]
    mov ecx,[r14+0x18]
    sfence
    mov rdx,[r14+0x58]
    mov esi,[r14+0x4C]
    cmp r15d,1
    jne .3
    cmp ebp,r13d
    sete dil
    cmp r8d,2
    setae r8b
    test dil,r8b
    jne .4
    jmp .7
.3:
    cmp ebp,r13d
    jne .7
    cmp r8d,2
    jb .7
    shl r8d,4
    cmp r8d,[r14+0x50]
    ja .7
    test r15,r15
    je .6
.4:
    mov rdi,[r12]
    mov [rdx+rsi],rdi
    mov rdi,[r12+8]
    mov [rdx+rsi+8],rdi
    mov rdi,[r12+0x10]
    mov [rdx+rsi+0x10],rdi
    mov rdi,[r12+0x18]
    mov [rdx+rsi+0x18],rdi
    mov rdi,[r12+0x20]
    mov [rdx+rsi+0x20],rdi
    mov rdi,[r12+0x28]
    mov [rdx+rsi+0x28],rdi
    mov rdi,[r12+0x30]
    mov [rdx+rsi+0x30],rdi
    mov rdi,[r12+0x38]
    mov [rdx+rsi+0x38],rdi
    cmp r15d,1
    je .6
    dec r15
    add rdx,rsi
    add rdx,0x78
    inc ebp
.5:
    mov esi,ebp
    and esi,ecx
    shl rsi,6
    mov rdi,[rax+rsi]
    mov [rdx-0x38],rdi
    mov rdi,[rax+rsi+8]
    mov [rdx-0x30],rdi
    mov rdi,[rax+rsi+0x10]
    mov [rdx-0x28],rdi
    mov rdi,[rax+rsi+0x18]
    mov [rdx-0x20],rdi
    mov rdi,[rax+rsi+0x20]
    mov [rdx-0x18],rdi
    mov rdi,[rax+rsi+0x28]
    mov [rdx-0x10],rdi
    mov rdi,[rax+rsi+0x30]
    mov [rdx-8],rdi
    mov rsi,[rax+rsi+0x38]
    mov [rdx],rsi
    add rdx,0x40
    inc ebp
    dec r15
    jne .5
.6:
    cmp byte [r14+0x49],0
    jne .8
    jmp .9
.7:
    mov [rdx+rsi],r9
.8:
    sfence
.9:
    mov eax,[r14+0x50]
    xor [r14+0x4C],eax
.10:
    mov [r14+0x20],ebx
    pshufd xmm0,xmm0,0xE1
    movq [r14+0x24],xmm0
    mov [r14+0x38],ebx
.11:
    add rsp,0x28
    pop rbx
    pop r12
    pop r13
    pop r14
    pop r15
    pop rbp
    ret
.12:
    mov rdi,r14
    mov edx,ebx
    movdqa [rsp+0x10],xmm0
    mov [rsp+8],r9
    mov [rsp+4],r8d
    call qword [rel uverbs_mlx5::rekey::<impl uverbs_mlx5::sq::Sq>::wait_for_umr]
    mov r8d,[rsp+4]
    mov r9,[rsp+8]
    movdqa xmm0,[rsp+0x10]
    mov [r14+0x88],rax
    jmp .1
