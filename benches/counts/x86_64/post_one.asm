; rustc 1.95.0 (59807616e 2026-04-14)
    push rbp
    push r15
    push r14
    push r13
    push r12
    push rbx
    push rax
    mov ebx,[rdi+0x38]
    cmp ebx,[rdi+0x20]
    jne .10
    mov r14,[rdx+8]
    mov eax,4
    cmp r14d,0x80000000
    ja .9
.1:
    mov ecx,[rdi+0x24]
    mov ebp,[rdi+0x28]
    mov r12,[rdx]
    cmp r14d,1
    mov r15d,2
    sbb r15d,0
    test ecx,ecx
    je .11
    dec ecx
.2:
    or r15d,[rdi+0x2C]
    mov rax,[rdi]
    movzx edx,bx
    shl edx,8
    or edx,0xA
    shl rdx,0x20
    or r15,rdx
    bswap r15
    mov r8,[rdi+8]
    mov r9d,[rdi+0x18]
    and r9d,ebx
    mov rdx,r9
    shl rdx,6
    mov [rax+rdx],r15
    mov qword [rax+rdx+8],0x8000000
    test r14d,r14d
    je .3
    bswap r12
    mov r10,r14
    rol r10,0x20
    mov r11,0x7FFFFFFFFFFFFFFF
    and r11,r10
    bswap r11
    mov [rax+rdx+0x10],r11
    mov [rax+rdx+0x18],r12
.3:
    inc ebp
    inc ebx
    shl r9,4
    mov [r8+r9],rsi
    mov [r8+r9+8],ebx
    mov [r8+r9+0xC],ebp
    mov rsi,[rdi+0x40]
    movzx r8d,bx
    bswap r8d
    mov [rsi+4],r8d
    movzx esi,byte [rdi+0x48]
    cmp sil,1
    jne .4
    mov rax,[rdi+0x50]
    mov [rax],r15
    jmp .8
.4:
    sfence
    mov rsi,[rdi+0x58]
    mov r8d,[rdi+0x4C]
    test r14d,r14d
    je .5
    mov r9,[rax+rdx]
    mov [rsi+r8],r9
    mov r9,[rax+rdx+8]
    mov [rsi+r8+8],r9
    mov r9,[rax+rdx+0x10]
    mov [rsi+r8+0x10],r9
    mov r9,[rax+rdx+0x18]
    mov [rsi+r8+0x18],r9
    mov r9,[rax+rdx+0x20]
    mov [rsi+r8+0x20],r9
    mov r9,[rax+rdx+0x28]
    mov [rsi+r8+0x28],r9
    mov r9,[rax+rdx+0x30]
    mov [rsi+r8+0x30],r9
    mov rax,[rax+rdx+0x38]
    mov [rsi+r8+0x38],rax
    cmp byte [rdi+0x49],0
    jne .6
    jmp .7
.5:
    mov [rsi+r8],r15
.6:
    sfence
.7:
    mov eax,[rdi+0x50]
    xor [rdi+0x4C],eax
.8:
    mov [rdi+0x20],ebx
    mov [rdi+0x24],ecx
    mov [rdi+0x28],ebp
    mov [rdi+0x38],ebx
    mov eax,0xB
.9:
    add rsp,8
    pop rbx
    pop r12
    pop r13
    pop r14
    pop r15
    pop rbp
    ret
.10:
    mov rbx,rdi
    mov r14,rsi
    mov r15,rdx
    call qword [rel uverbs_mlx5::sq::Sq::disown]
    mov rdx,r15
    mov rsi,r14
    mov rdi,rbx
    mov ebx,[rbx+0x20]
    mov r14,[rdx+8]
    mov eax,4
    cmp r14d,0x80000000
    jbe .1
    jmp .9
.11:
    mov [rsp],rsi
    mov r13,rdi
    mov esi,ebx
    mov edx,ebp
    mov ecx,1
    call qword [rel uverbs_mlx5::sq::Sq::make_room]
    mov ecx,eax
    mov eax,edx
    test cl,1
    je .12
    xor ecx,ecx
    cmp eax,0xB
    mov rdi,r13
    mov rsi,[rsp]
    je .2
    jmp .9
.12:
    mov ecx,eax
    mov rdi,r13
    mov rsi,[rsp]
    jmp .2
