; rustc 1.95.0 (59807616e 2026-04-14)
    mov rax,[rdi]
    mov ecx,[rdi+0x18]
    cmp ecx,[rax+0x10]
    je .6
    push rbp
    push r14
    push rbx
    mov r9,[rdi+8]
    mov esi,[rdi+0x10]
    mov r10d,[rdi+0x14]
    mov edx,[rdi+0x1C]
    mov rdi,[rax+0x38]
    movzx r8d,cx
    bswap r8d
    mov [rdi+4],r8d
    cmp qword [rax+0x40],0
    je .2
    mov ebp,[rax+0x10]
    mov rdi,[rax]
    mov r8d,[rax+8]
    sfence
    mov r11,[rax+0x48]
    mov ebx,[rax+0x50]
    cmp r10d,2
    jb .3
    cmp esi,ebp
    jne .3
    mov ebp,r10d
    shl ebp,4
    cmp ebp,[rax+0x54]
    ja .3
    shr ebp,6
    xor r9d,r9d
    test r10b,3
    setne r9b
    add r9d,ebp
    je .4
    mov r9d,r9d
    shl r9,6
    lea r10,[rbx+r11]
    add r10,0x38
    xor r11d,r11d
.1:
    mov ebx,esi
    and ebx,r8d
    shl rbx,6
    mov r14,[rdi+rbx]
    mov [r10+r11-0x38],r14
    mov r14,[rdi+rbx+8]
    mov [r10+r11-0x30],r14
    mov r14,[rdi+rbx+0x10]
    mov [r10+r11-0x28],r14
    mov r14,[rdi+rbx+0x18]
    mov [r10+r11-0x20],r14
    mov r14,[rdi+rbx+0x20]
    mov [r10+r11-0x18],r14
    mov r14,[rdi+rbx+0x28]
    mov [r10+r11-0x10],r14
    mov r14,[rdi+rbx+0x30]
    mov [r10+r11-8],r14
    mov rbx,[rdi+rbx+0x38]
    mov [r10+r11],rbx
    add r11,0x40
    inc esi
    cmp r9,r11
    jne .1
    jmp .4
.2:
    mov rsi,[rax+0x48]
    mov [rsi],r9
    jmp .5
.3:
    mov [r11+rbx],r9
    sfence
.4:
    mov esi,[rax+0x54]
    xor [rax+0x50],esi
.5:
    mov [rax+0x10],ecx
    mov [rax+0x18],edx
    mov [rax+0x30],ecx
    pop rbx
    pop r14
    pop rbp
.6:
    ret
