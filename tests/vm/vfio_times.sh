# Times of control calls on the function of vfio-pci beside mlx5_0's, the best of three rounds: PROGRAM
# (`control-path`).
set -e
rm -f /tmp/function /tmp/kernel
for round in 1 2 3; do
    UVERBS_TEST_DEVICE=$ON "$1" times 100 >> /tmp/function
    "$1" times 100 >> /tmp/kernel
done
awk -F': ' '
    !/further/ { next }
    { names[$1]; at = FILENAME ": " $1 }
    !(at in best) || $2 + 0 < best[at] { best[at] = $2 + 0 }
    END {
        for (name in names) {
            ours = best["/tmp/function: " name] / 1e5
            kernel = best["/tmp/kernel: " name] / 1e5
            printf "%s: ratio %.2f, %d us a call over VFIO, %d us in the kernel\n", name, ours / kernel, ours, kernel
            calls += ours > 0 && kernel > 0
        }
        exit calls != 7
    }
' /tmp/function /tmp/kernel
