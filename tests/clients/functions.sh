# Functions of the rows in programs.txt.

# Tells the server's side that the client is done.
finish() {
    : >/tmp/done
}

# Runs a server that never ends, until the client is done. It must live until then.
serve() {
    "$@" &
    until [ -e /tmp/done ]; do
        kill -0 $! || return
        sleep 0.05
    done
    kill $!
    wait $! || true
}

# Repeats a command until it succeeds, for 10 s: a client of a server that takes long to begin.
retry() {
    for _ in $(seq 100); do
        "$@" && return
        sleep 0.1
    done
    return 1
}
