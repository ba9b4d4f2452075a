; rustc 1.95.0 (59807616e 2026-04-14)
    push rbp
    push r15
    push r14
    push rbx
    push rax
    mov ebx,[rdi+0x28]
    mov ebp,[rdi+0x34]
    cmp ebx,ebp
    je .11
    mov r14,[rdi+0x38]
    cmp dword [rdi],1
    je .12
.1:
    mov rax,[r14+0x40]
    movzx ecx,bx
    bswap ecx
    mov [rax+4],ecx
    mov r11,[rdi+8]
    movzx eax,byte [r14+0x48]
    cmp al,1
    jne .2
    mov rax,[r14+0x50]
    mov [rax],r11
    jmp .10
.2:
    mov eax,[rdi+0x18]
    mov rcx,[r14]
    mov edx,[r14+0x18]
    mov r10,[rdi+0x10]
    mov r15d,[rdi+0x1C]
    mov esi,[rdi+0x20]
    sfence
    mov r8,[r14+0x58]
    mov r9d,[r14+0x4C]
    cmp esi,1
    jne .3
    cmp eax,ebp
    sete bpl
    cmp r15d,2
    setae r15b
    test bpl,r15b
    jne .4
    jmp .7
.3:
    cmp eax,ebp
    jne .7
    cmp r15d,2
    jb .7
    shl r15d,4
    cmp r15d,[r14+0x50]
    ja .7
    test rsi,rsi
    je .6
.4:
    mov r11,[r10]
    mov [r8+r9],r11
    mov r11,[r10+8]
    mov [r8+r9+8],r11
    mov r11,[r10+0x10]
    mov [r8+r9+0x10],r11
    mov r11,[r10+0x18]
    mov [r8+r9+0x18],r11
    mov r11,[r10+0x20]
    mov [r8+r9+0x20],r11
    mov r11,[r10+0x28]
    mov [r8+r9+0x28],r11
    mov r11,[r10+0x30]
    mov [r8+r9+0x30],r11
    mov r10,[r10+0x38]
    mov [r8+r9+0x38],r10
    cmp esi,1
    je .6
    dec rsi
    add r8,r9
    add r8,0x78
    inc eax
.5:
    mov r9d,eax
    and r9d,edx
    shl r9,6
    mov r10,[rcx+r9]
    mov [r8-0x38],r10
    mov r10,[rcx+r9+8]
    mov [r8-0x30],r10
    mov r10,[rcx+r9+0x10]
    mov [r8-0x28],r10
    mov r10,[rcx+r9+0x18]
    mov [r8-0x20],r10
    mov r10,[rcx+r9+0x20]
    mov [r8-0x18],r10
    mov r10,[rcx+r9+0x28]
    mov [r8-0x10],r10
    mov r10,[rcx+r9+0x30]
    mov [r8-8],r10
    mov r9,[rcx+r9+0x38]
    mov [r8],r9
    add r8,0x40
    inc eax
    dec rsi
    jne .5
.6:
    cmp byte [r14+0x49],0
    jne .8
    jmp .9
.7:
    mov [r8+r9],r11
.8:
    sfence
.9:
    mov eax,[r14+0x50]
    xor [r14+0x4C],eax
.10:
    mov [r14+0x20],ebx
    movq xmm0,[rdi+0x2C]
    pshufd xmm0,xmm0,0xE1
    movq [r14+0x24],xmm0
    mov [r14+0x38],ebx
.11:
    add rsp,8
    pop rbx
    pop r14
    pop r15
    pop rbp
    ret
.12:
    mov esi,[rdi+4]
    mov r15,rdi
    mov rdi,r14
    mov edx,ebx
    call qword [rel uverbs_mlx5::rekey::<impl uverbs_mlx5::sq::Sq>::fence_behind_umr]
    mov rdi,r15
    mov [r14+0x88],eax
    mov [r14+0x8C],edx
    jmp .1
