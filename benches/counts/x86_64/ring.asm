; rustc 1.95.0 (59807616e 2026-04-14)
    push rbp
    push r14
    push rbx
    mov eax,[rdi+0x28]
    mov r14d,[rdi+0x34]
    cmp eax,r14d
    je .10
    mov rcx,[rdi]
    mov rbx,[rdi+8]
    mov r9,[rdi+0x10]
    mov edx,[rdi+0x18]
    mov ebp,[rdi+0x1C]
    mov esi,[rdi+0x20]
    movq xmm0,[rdi+0x2C]
    mov rdi,[rcx+0x40]
    movzx r8d,ax
    bswap r8d
    mov [rdi+4],r8d
    movzx edi,byte [rcx+0x48]
    cmp dil,1
    jne .1
    mov rdx,[rcx+0x50]
    mov [rdx],rbx
    jmp .9
.1:
    mov rdi,[rcx]
    mov r8d,[rcx+0x18]
    sfence
    mov r10,[rcx+0x58]
    mov r11d,[rcx+0x4C]
    cmp esi,1
    jne .2
    cmp edx,r14d
    sete r14b
    cmp ebp,2
    setae bpl
    test r14b,bpl
    jne .3
    jmp .6
.2:
    cmp edx,r14d
    jne .6
    cmp ebp,2
    jb .6
    shl ebp,4
    cmp ebp,[rcx+0x50]
    ja .6
    test rsi,rsi
    je .5
.3:
    mov rbx,[r9]
    mov [r10+r11],rbx
    mov rbx,[r9+8]
    mov [r10+r11+8],rbx
    mov rbx,[r9+0x10]
    mov [r10+r11+0x10],rbx
    mov rbx,[r9+0x18]
    mov [r10+r11+0x18],rbx
    mov rbx,[r9+0x20]
    mov [r10+r11+0x20],rbx
    mov rbx,[r9+0x28]
    mov [r10+r11+0x28],rbx
    mov rbx,[r9+0x30]
    mov [r10+r11+0x30],rbx
    mov r9,[r9+0x38]
    mov [r10+r11+0x38],r9
    cmp esi,1
    je .5
    dec rsi
    lea r9,[r11+r10]
    add r9,0x78
    inc edx
.4:
    mov r10d,edx
    and r10d,r8d
    shl r10,6
    mov r11,[rdi+r10]
    mov [r9-0x38],r11
    mov r11,[rdi+r10+8]
    mov [r9-0x30],r11
    mov r11,[rdi+r10+0x10]
    mov [r9-0x28],r11
    mov r11,[rdi+r10+0x18]
    mov [r9-0x20],r11
    mov r11,[rdi+r10+0x20]
    mov [r9-0x18],r11
    mov r11,[rdi+r10+0x28]
    mov [r9-0x10],r11
    mov r11,[rdi+r10+0x30]
    mov [r9-8],r11
    mov r10,[rdi+r10+0x38]
    mov [r9],r10
    add r9,0x40
    inc edx
    dec rsi
    jne .4
.5:
    cmp byte [rcx+0x49],0
    jne .7
    jmp .8
.6:
    mov [r10+r11],rbx
.7:
    sfence
.8:
    mov edx,[rcx+0x50]
    xor [rcx+0x4C],edx
.9:
    mov [rcx+0x20],eax
    pshufd xmm0,xmm0,0xE1
    movq [rcx+0x24],xmm0
    mov [rcx+0x38],eax
.10:
    pop rbx
    pop r14
    pop rbp
    ret
