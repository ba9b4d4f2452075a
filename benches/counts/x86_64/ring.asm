; rustc 1.95.0 (59807616e 2026-04-14)
    push rbp
    push r15
    push r14
    push r12
    push rbx
    mov esi,[rdi+0x28]
    mov ebp,[rdi+0x34]
    cmp esi,ebp
    je .10
    mov rax,rdi
    mov rdi,[rdi]
    mov r8d,[rax+0x18]
    mov edx,[rax+0x2C]
    mov ecx,[rax+0x30]
    cmp dword [rdi+0x48],0
    jne .11
    mov r15,[rax+8]
    mov r11,[rax+0x10]
    mov r12d,[rax+0x1C]
    mov eax,[rax+0x20]
    mov r9,[rdi+0x50]
    movzx r10d,si
    bswap r10d
    mov [r9+4],r10d
    movzx r9d,byte [rdi+0x58]
    cmp r9b,1
    jne .1
    mov rax,[rdi+0x60]
    mov [rax],r15
    jmp .9
.1:
    mov r9,[rdi]
    mov r10d,[rdi+0x18]
    sfence
    mov rbx,[rdi+0x68]
    mov r14d,[rdi+0x5C]
    cmp eax,1
    jne .2
    cmp r8d,ebp
    sete bpl
    cmp r12d,2
    setae r12b
    test bpl,r12b
    jne .3
    jmp .6
.2:
    cmp r8d,ebp
    jne .6
    cmp r12d,2
    jb .6
    mov ebp,eax
    shl ebp,6
    cmp ebp,[rdi+0x60]
    ja .6
    test rax,rax
    je .5
.3:
    mov r15,[r11]
    mov [rbx+r14],r15
    mov r15,[r11+8]
    mov [rbx+r14+8],r15
    mov r15,[r11+0x10]
    mov [rbx+r14+0x10],r15
    mov r15,[r11+0x18]
    mov [rbx+r14+0x18],r15
    mov r15,[r11+0x20]
    mov [rbx+r14+0x20],r15
    mov r15,[r11+0x28]
    mov [rbx+r14+0x28],r15
    mov r15,[r11+0x30]
    mov [rbx+r14+0x30],r15
    mov r11,[r11+0x38]
    mov [rbx+r14+0x38],r11
    cmp eax,1
    je .5
    dec rax
    lea r11,[r14+rbx]
    add r11,0x78
    inc r8d
.4:
    mov ebx,r8d
    and ebx,r10d
    shl rbx,6
    mov r14,[r9+rbx]
    mov [r11-0x38],r14
    mov r14,[r9+rbx+8]
    mov [r11-0x30],r14
    mov r14,[r9+rbx+0x10]
    mov [r11-0x28],r14
    mov r14,[r9+rbx+0x18]
    mov [r11-0x20],r14
    mov r14,[r9+rbx+0x20]
    mov [r11-0x18],r14
    mov r14,[r9+rbx+0x28]
    mov [r11-0x10],r14
    mov r14,[r9+rbx+0x30]
    mov [r11-8],r14
    mov rbx,[r9+rbx+0x38]
    mov [r11],rbx
    add r11,0x40
    inc r8d
    dec rax
    jne .4
.5:
    cmp byte [rdi+0x59],0
    jne .7
    jmp .8
.6:
    mov [rbx+r14],r15
.7:
    sfence
.8:
    mov eax,[rdi+0x60]
    xor [rdi+0x5C],eax
.9:
    mov [rdi+0x24],ecx
    mov [rdi+0x20],esi
    mov [rdi+0x28],edx
    mov [rdi+0x40],esi
.10:
    pop rbx
    pop r12
    pop r14
    pop r15
    pop rbp
    ret
.11:
    pop rbx
    pop r12
    pop r14
    pop r15
    pop rbp
    jmp qword [rel uverbs_mlx5::rekey::<impl uverbs_mlx5::sq::Sq>::publish_behind_umr]
