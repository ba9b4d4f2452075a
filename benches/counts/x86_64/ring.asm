; rustc 1.95.0 (59807616e 2026-04-14)
    push rbp
    push r15
    push r14
    push rbx
    mov esi,[rdi+0x28]
    mov r14d,[rdi+0x34]
    cmp esi,r14d
    je .11
    mov rax,rdi
    mov rdi,[rdi]
    mov r8d,[rax+0x18]
    mov edx,[rax+0x2C]
    mov ecx,[rax+0x30]
    cmp dword [rdi+0x48],0
    jne .13
    mov rbx,[rax+8]
    mov r9,[rax+0x10]
    mov ebp,[rax+0x1C]
    mov eax,[rax+0x20]
    mov r10,[rdi+0x50]
    movzx r11d,si
    bswap r11d
    mov [r10+4],r11d
    cmp dword [rdi+0x6C],0
    je .1
    mov r10,[rdi]
    mov r11d,[rdi+0x18]
    sfence
    cmp eax,1
    jne .2
    cmp r8d,r14d
    sete al
    cmp ebp,2
    setae r8b
    test al,r8b
    je .4
    mov rax,[rdi+0x58]
    mov r8d,[rdi+0x68]
    mov r10,[r9]
    mov [rax+r8],r10
    mov r10,[r9+8]
    mov [rax+r8+8],r10
    mov r10,[r9+0x10]
    mov [rax+r8+0x10],r10
    mov r10,[r9+0x18]
    mov [rax+r8+0x18],r10
    cmp ebp,3
    jae .5
    movaps xmm0,[r9+0x20]
    movaps [rax+r8+0x20],xmm0
    jmp .6
.1:
    mov rax,[rdi+0x58]
    mov r8d,[rdi+0x68]
    mov [rax+r8],rbx
    jmp .10
.2:
    cmp r8d,r14d
    jne .4
    cmp ebp,2
    jb .4
    mov ebp,eax
    shl ebp,6
    cmp ebp,[rdi+0x6C]
    ja .4
    test rax,rax
    je .7
    mov ebx,[rdi+0x68]
    mov r14,[rdi+0x58]
    mov r15,[r9]
    mov [r14+rbx],r15
    mov r15,[r9+8]
    mov [r14+rbx+8],r15
    movaps xmm0,[r9+0x10]
    movaps [r14+rbx+0x10],xmm0
    movaps xmm0,[r9+0x20]
    movaps [r14+rbx+0x20],xmm0
    movaps xmm0,[r9+0x30]
    movaps [r14+rbx+0x30],xmm0
    inc r8d
    lea r9,[r14+rbx]
    add r9,0x70
    dec rax
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
    inc r8d
    add r9,0x40
    dec rax
    jne .3
    jmp .7
.4:
    mov rax,[rdi+0x58]
    mov r8d,[rdi+0x68]
    mov [rax+r8],rbx
    jmp .8
.5:
    mov r10,[r9+0x20]
    mov [rax+r8+0x20],r10
    mov r10,[r9+0x28]
    mov [rax+r8+0x28],r10
    jne .12
.6:
    movaps xmm0,[r9+0x30]
    movaps [rax+r8+0x30],xmm0
.7:
    cmp dword [rdi+0x70],0
    jne .9
.8:
    sfence
.9:
    mov eax,[rdi+0x6C]
    xor [rdi+0x68],eax
.10:
    mov [rdi+0x28],ecx
    mov [rdi+0x20],esi
    mov [rdi+0x24],edx
    mov [rdi+0x40],esi
.11:
    pop rbx
    pop r14
    pop r15
    pop rbp
    ret
.12:
    mov r10,[r9+0x30]
    mov [rax+r8+0x30],r10
    mov r9,[r9+0x38]
    mov [rax+r8+0x38],r9
    cmp dword [rdi+0x70],0
    jne .9
    jmp .8
.13:
    pop rbx
    pop r14
    pop r15
    pop rbp
    jmp qword [rel uverbs_mlx5::send::rekey::<impl uverbs_mlx5::send::queue::Sq>::publish_behind_umr]
