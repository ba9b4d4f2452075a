# A program between mlx5_0 and mlx5_1, each of them once as server: PROGRAM ARGUMENTS...
set -e
# Ours has a word for it.
[ $1 != uverbs ] || server=--server
for n in 0 1; do
    sh /vm/connect.sh "$@" -d mlx5_$n $server -- "$@" -d mlx5_$((1 - n)) 127.0.0.1
done
