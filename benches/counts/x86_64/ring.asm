; rustc 1.95.0 (59807616e 2026-04-14)
    push rbp
    push r15
    push r14
    push r12
    push rbx
    mov esi,[rdi+0x28]
    mov r12d,[rdi+0x34]
    cmp esi,r12d
    je .11
    mov rax,rdi
    mov rdi,[rdi]
    mov r8d,[rax+0x18]
    mov edx,[rax+0x2C]
    mov ecx,[rax+0x30]
    cmp dword [rdi+0x48],0
    jne .13
    mov r15,[rax+8]
    mov r9,[rax+0x10]
    mov ebp,[rax+0x1C]
    mov eax,[rax+0x20]
    mov r10,[rdi+0x50]
    movzx r11d,si
    bswap r11d
    mov [r10+4],r11d
    movzx r10d,byte [rdi+0x58]
    cmp r10b,1
    jne .1
    mov rax,[rdi+0x60]
    mov [rax],r15
    jmp .10
.1:
    mov r10,[rdi]
    mov ebx,[rdi+0x18]
    sfence
    mov r11,[rdi+0x68]
    mov r14d,[rdi+0x5C]
    cmp eax,1
    jne .2
    cmp r8d,r12d
    sete al
    cmp ebp,2
    setae r8b
    test al,r8b
    je .4
    mov rax,[r9]
    mov [r11+r14],rax
    mov rax,[r9+8]
    mov [r11+r14+8],rax
    mov rax,[r9+0x10]
    mov [r11+r14+0x10],rax
    mov rax,[r9+0x18]
    mov [r11+r14+0x18],rax
    cmp ebp,3
    jae .5
    movaps xmm0,[r9+0x20]
    movaps [r11+r14+0x20],xmm0
    jmp .6
.2:
    cmp r8d,r12d
    jne .4
    cmp ebp,2
    jb .4
    mov ebp,eax
    shl ebp,6
    cmp ebp,[rdi+0x60]
    ja .4
    test rax,rax
    je .7
    mov r15,[r9]
    mov [r11+r14],r15
    mov r15,[r9+8]
    mov [r11+r14+8],r15
    movaps xmm0,[r9+0x10]
    movaps [r11+r14+0x10],xmm0
    movaps xmm0,[r9+0x20]
    movaps [r11+r14+0x20],xmm0
    movaps xmm0,[r9+0x30]
    movaps [r11+r14+0x30],xmm0
    dec rax
    lea r9,[r11+r14]
    add r9,0x70
    inc r8d
.3:
    mov r11d,r8d
    and r11d,ebx
    shl r11,6
    mov r14,[r10+r11]
    mov [r9-0x30],r14
    mov r14,[r10+r11+8]
    mov [r9-0x28],r14
    movaps xmm0,[r10+r11+0x10]
    movaps [r9-0x20],xmm0
    movaps xmm0,[r10+r11+0x20]
    movaps [r9-0x10],xmm0
    movaps xmm0,[r10+r11+0x30]
    movaps [r9],xmm0
    add r9,0x40
    inc r8d
    dec rax
    jne .3
    jmp .7
.4:
    mov [r11+r14],r15
    jmp .8
.5:
    mov rax,[r9+0x20]
    mov [r11+r14+0x20],rax
    mov rax,[r9+0x28]
    mov [r11+r14+0x28],rax
    jne .12
.6:
    movaps xmm0,[r9+0x30]
    movaps [r11+r14+0x30],xmm0
.7:
    cmp byte [rdi+0x59],0
    je .9
.8:
    sfence
.9:
    mov eax,[rdi+0x60]
    xor [rdi+0x5C],eax
.10:
    mov [rdi+0x28],ecx
    mov [rdi+0x20],esi
    mov [rdi+0x24],edx
    mov [rdi+0x40],esi
.11:
    pop rbx
    pop r12
    pop r14
    pop r15
    pop rbp
    ret
.12:
    mov rax,[r9+0x30]
    mov [r11+r14+0x30],rax
    mov rax,[r9+0x38]
    mov [r11+r14+0x38],rax
    cmp byte [rdi+0x59],0
    jne .8
    jmp .9
.13:
    pop rbx
    pop r12
    pop r14
    pop r15
    pop rbp
    jmp qword [rel uverbs_mlx5::rekey::<impl uverbs_mlx5::sq::Sq>::publish_behind_umr]
