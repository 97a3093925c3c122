# shellcheck shell=bash
# What the start and stop scripts of test servers share; sourced by them. docs/contributing.md
# tells what a start script has to do.

# say tells the person who waits; standard output is for the URL alone.
say() { echo "servers/${server:-?}: $*" >&2; }

# fail says why and ends the script.
fail() { say "$@"; exit 1; }

# started_at PID prints when the process began (in ticks since boot), nothing if there is none.
# With it a process is told from a later one of the same number.
started_at() {
	local stat
	stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 0
	stat=${stat##*) } # the name in parentheses may hold anything
	set -- $stat
	# One that has ended and was not waited for is none; but some of its threads may still be ending, and hold its ports.
	[[ $1 == Z && ${18} -le 1 ]] || echo "${20}"
}

# note_pid DIR NODE PID remembers a server's process, the leader of a session of its own.
note_pid() { echo "$3 $(started_at "$3")" >"$1/$2.pid"; }

# node_pid DIR NODE prints the process of a node if it still runs.
node_pid() {
	local pid began
	[[ -s $1/$2.pid ]] && read -r pid began <"$1/$2.pid" || return 1
	[[ -n $began && $(started_at "$pid") == "$began" ]] && echo "$pid"
}

# tree PID… prints the processes and all their descendants, whatever sessions and users they moved to.
tree() {
	local -A want=()
	local pid found=1
	for pid; do want[$pid]=1; done
	while [[ $found == 1 ]]; do
		found=0
		while read -r pid ppid; do
			if [[ -n ${want[$ppid]:-} && -z ${want[$pid]:-} ]]; then want[$pid]=1 found=1; fi
		done < <(ps -eo pid=,ppid=)
	done
	echo "${!want[@]}"
}

# wait_for SECONDS DIR NODE COMMAND… repeats the command until it succeeds, and fails the script when
# the time is over or the node's process has ended.
wait_for() {
	local until=$((SECONDS + $1)) dir=$2 node=$3
	shift 3
	until "$@" >/dev/null 2>&1; do
		node_pid "$dir" "$node" >/dev/null || fail "$node has ended instead of answering"
		((SECONDS < until)) || fail "$node does not answer"
		sleep 0.1
	done
}

# answers HOST PORT tells whether something listens.
answers() { (exec 3<>"/dev/tcp/$1/$2") 2>/dev/null; }

# port DIR NAME [HOST…] prints the port of that name: the one that was chosen before, or a free one
# below those that the system gives to clients. It is free on every HOST (default 127.0.0.1).
port() {
	local dir=$1 name=$2 candidate host
	shift 2
	[[ $# -gt 0 ]] || set -- 127.0.0.1
	if [[ ! -s $dir/$name.port ]]; then
		while :; do
			candidate=$((10000 + (RANDOM * 32768 + RANDOM) % 22000))
			for host; do
				answers "$host" "$candidate" && continue 2
			done
			grep -qsx "$candidate" "$dir"/*.port || break
		done
		echo "$candidate" >"$dir/$name.port"
	fi
	cat "$dir/$name.port"
}

# stop_nodes DIR [SECONDS] ends every node of DIR, at first politely (SIGTERM to its main process, or
# $stop_signal), after SECONDS (10) for sure. Nothing running is no error.
stop_nodes() {
	local dir=$1 until=$((SECONDS + ${2:-10})) file pid pids=()
	for file in "$dir"/*.pid; do
		pid=$(node_pid "$dir" "$(basename "${file%.pid}")") && pids+=("$pid")
	done
	[[ ${#pids[@]} -gt 0 ]] || return 0
	# shellcheck disable=SC2207
	local all=($(tree "${pids[@]}"))
	kill -CONT "${all[@]}" 2>/dev/null || true
	kill -"${stop_signal:-TERM}" "${pids[@]}" 2>/dev/null || true
	for pid in "${pids[@]}"; do
		while [[ -n $(started_at "$pid") ]] && ((SECONDS < until)); do sleep 0.05; done
	done
	for pid in "${all[@]}"; do
		[[ -z $(started_at "$pid") ]] || kill -KILL "$pid" 2>/dev/null || true
	done
	rm -f "$dir"/*.pid
}

# cache is where downloads are kept between runs.
cache=${HOLDFAST_CACHE:-$HOME/.cache/holdfast}

# once NAME COMMAND… runs the command if $cache/NAME is not there. It is to make the folder whose
# path it gets as a further argument, and is never run twice at the same time for one NAME.
once() {
	local name=$1
	shift
	[[ -d $cache/$name ]] && return
	mkdir -p "$(dirname "$cache/$name")"
	(
		flock 9
		[[ -d $cache/$name ]] && exit
		rm -rf "$cache/$name.new"
		mkdir "$cache/$name.new"
		"$@" "$cache/$name.new" || exit
		mv "$cache/$name.new" "$cache/$name"
	) 9>"$cache/$name.lock"
}
