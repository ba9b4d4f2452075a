; rustc 1.95.0 (59807616e 2026-04-14)
    movzx r11d,byte [rdi+0x1E]
    test r11b,r11b
    je .11
    mov rax,rdi
    mov rdi,[rdi]
    mov rsi,[rax+8]
    mov edx,[rax+0x10]
    movzx ecx,byte [rax+0x1F]
    cmp dword [rdi+0x48],0
    jne .13
    push r14
    push rbx
    mov r8d,[rax+0x14]
    mov r9d,[rax+0x18]
    movzx ebx,word [rax+0x1C]
    mov rax,[rdi+0x50]
    movzx r10d,si
    bswap r10d
    mov [rax+4],r10d
    mov rax,[rdi]
    cmp dword [rdi+0x6C],0
    je .1
    mov r10d,[rdi+0x18]
    sfence
    cmp ecx,1
    jne .2
    cmp bx,r8w
    sete cl
    cmp r11b,1
    setne r8b
    test cl,r8b
    je .4
    mov ecx,[rdi+0x68]
    mov r8,[rdi+0x58]
    mov r10,[rax+r9*4]
    mov [r8+rcx],r10
    mov r10,[rax+r9*4+8]
    mov [r8+rcx+8],r10
    mov r10,[rax+r9*4+0x10]
    mov [r8+rcx+0x10],r10
    mov r10,[rax+r9*4+0x18]
    mov [r8+rcx+0x18],r10
    cmp r11b,3
    jae .5
    movaps xmm0,[rax+r9*4+0x20]
    movaps [r8+rcx+0x20],xmm0
    jmp .6
.1:
    mov rax,[rax+r9*4]
    mov rcx,[rdi+0x58]
    mov r8d,[rdi+0x68]
    mov [rcx+r8],rax
    jmp .10
.2:
    cmp bx,r8w
    jne .4
    cmp r11b,1
    je .4
    mov r11d,ecx
    shl r11d,6
    cmp r11d,[rdi+0x6C]
    ja .4
    test ecx,ecx
    je .7
    mov ecx,ecx
    mov r11d,[rdi+0x68]
    mov rbx,[rdi+0x58]
    mov r14,[rax+r9*4]
    mov [rbx+r11],r14
    mov r14,[rax+r9*4+8]
    mov [rbx+r11+8],r14
    movaps xmm0,[rax+r9*4+0x10]
    movaps [rbx+r11+0x10],xmm0
    movaps xmm0,[rax+r9*4+0x20]
    movaps [rbx+r11+0x20],xmm0
    movaps xmm0,[rax+r9*4+0x30]
    movaps [rbx+r11+0x30],xmm0
    inc r8d
    lea r9,[rbx+r11]
    add r9,0x70
    dec rcx
.3:
    mov r11d,r8d
    and r11d,r10d
    shl r11,6
    mov rbx,[rax+r11]
    mov [r9-0x30],rbx
    mov rbx,[rax+r11+8]
    mov [r9-0x28],rbx
    movaps xmm0,[rax+r11+0x10]
    movaps [r9-0x20],xmm0
    movaps xmm0,[rax+r11+0x20]
    movaps [r9-0x10],xmm0
    movaps xmm0,[rax+r11+0x30]
    movaps [r9],xmm0
    inc r8d
    add r9,0x40
    dec rcx
    jne .3
    jmp .7
.4:
    mov rax,[rax+r9*4]
    mov rcx,[rdi+0x58]
    mov r8d,[rdi+0x68]
    mov [rcx+r8],rax
    jmp .8
.5:
    mov r10,[rax+r9*4+0x20]
    mov [r8+rcx+0x20],r10
    mov r10,[rax+r9*4+0x28]
    mov [r8+rcx+0x28],r10
    jne .12
.6:
    movaps xmm0,[rax+r9*4+0x30]
    movaps [r8+rcx+0x30],xmm0
.7:
    cmp dword [rdi+0x70],0
    jne .9
.8:
    sfence
.9:
    mov eax,[rdi+0x6C]
    xor [rdi+0x68],eax
.10:
    mov [rdi+0x28],edx
    mov [rdi+0x20],rsi
    mov [rdi+0x40],esi
    pop rbx
    pop r14
.11:
    ret
.12:
    mov r10,[rax+r9*4+0x30]
    mov [r8+rcx+0x30],r10
    mov rax,[rax+r9*4+0x38]
    mov [r8+rcx+0x38],rax
    cmp dword [rdi+0x70],0
    jne .9
    jmp .8
.13:
    jmp qword [rel uverbs_mlx5::send::rekey::<impl uverbs_mlx5::send::queue::Sq>::publish_behind_umr]
