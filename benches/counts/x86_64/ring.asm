; rustc 1.95.0 (59807616e 2026-04-14)
    push rbp
    push r15
    push r14
    push r12
    push rbx
    mov esi,[rdi+0x28]
    mov ebp,[rdi+0x34]
    cmp esi,ebp
    je .9
    mov rax,rdi
    mov rdi,[rdi]
    mov r8d,[rax+0x18]
    mov edx,[rax+0x2C]
    mov ecx,[rax+0x30]
    cmp dword [rdi+0x48],0
    jne .10
    mov r15,[rax+8]
    mov r9,[rax+0x10]
    mov r12d,[rax+0x1C]
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
    jmp .8
.1:
    mov r10,[rdi]
    mov r11d,[rdi+0x18]
    sfence
    mov rbx,[rdi+0x68]
    mov r14d,[rdi+0x5C]
    cmp eax,1
    jne .2
    cmp r8d,ebp
    sete al
    cmp r12d,2
    setae r8b
    test al,r8b
    je .5
    mov rax,[r9]
    mov [rbx+r14],rax
    mov rax,[r9+8]
    mov [rbx+r14+8],rax
    mov rax,[r9+0x10]
    mov [rbx+r14+0x10],rax
    mov rax,[r9+0x18]
    mov [rbx+r14+0x18],rax
    mov rax,[r9+0x20]
    mov [rbx+r14+0x20],rax
    mov rax,[r9+0x28]
    mov [rbx+r14+0x28],rax
    mov rax,[r9+0x30]
    mov [rbx+r14+0x30],rax
    mov rax,[r9+0x38]
    mov [rbx+r14+0x38],rax
    jmp .4
.2:
    cmp r8d,ebp
    jne .5
    cmp r12d,2
    jb .5
    mov ebp,eax
    shl ebp,6
    cmp ebp,[rdi+0x60]
    ja .5
    test rax,rax
    je .4
    mov r15,[r9]
    mov [rbx+r14],r15
    mov r15,[r9+8]
    mov [rbx+r14+8],r15
    movaps xmm0,[r9+0x10]
    movaps [rbx+r14+0x10],xmm0
    movaps xmm0,[r9+0x20]
    movaps [rbx+r14+0x20],xmm0
    movaps xmm0,[r9+0x30]
    movaps [rbx+r14+0x30],xmm0
    dec rax
    lea r9,[rbx+r14]
    add r9,0x70
    inc r8d
.3:
    mov ebx,r8d
    and ebx,r11d
    shl rbx,6
    mov r14,[r10+rbx]
    mov [r9-0x30],r14
    mov r14,[r10+rbx+8]
    mov [r9-0x28],r14
    movaps xmm0,[r10+rbx+0x10]
    movaps [r9-0x20],xmm0
    movaps xmm0,[r10+rbx+0x20]
    movaps [r9-0x10],xmm0
    movaps xmm0,[r10+rbx+0x30]
    movaps [r9],xmm0
    add r9,0x40
    inc r8d
    dec rax
    jne .3
.4:
    cmp byte [rdi+0x59],0
    jne .6
    jmp .7
.5:
    mov [rbx+r14],r15
.6:
    sfence
.7:
    mov eax,[rdi+0x60]
    xor [rdi+0x5C],eax
.8:
    mov [rdi+0x24],ecx
    mov [rdi+0x20],esi
    mov [rdi+0x28],edx
    mov [rdi+0x40],esi
.9:
    pop rbx
    pop r12
    pop r14
    pop r15
    pop rbp
    ret
.10:
    pop rbx
    pop r12
    pop r14
    pop r15
    pop rbp
    jmp qword [rel uverbs_mlx5::rekey::<impl uverbs_mlx5::sq::Sq>::publish_behind_umr]
