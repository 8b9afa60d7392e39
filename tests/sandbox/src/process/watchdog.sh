# Ends a group's processes and removes its directory, as soon as the group says so or its owner is gone.
#
# stdin is a pipe whose other end the owner holds, and every process of the group until it has told its own
# process id and executes its program. So end of file means that the owner is gone, even by SIGKILL, and that
# no process is missing from the list.
#
#   + PID    a process that leads its own process group
#   - PID    it has ended, and was waited for: the number may be somebody else's from now on
#   cgroup DIR  control groups of processes on the list, to be removed when these have ended; its name has no space
#   end      the owner has finished
trap '' HUP INT TERM
pids=' '
cgroups=
while read -r word pid; do
  case $word in
  +) pids="$pids$pid " ;;
  -) case $pids in *" $pid "*) pids="${pids%% "$pid" *} ${pids#* "$pid" }" ;; esac ;;
  cgroup) cgroups="$cgroups $pid" ;;
  end) break ;;
  esac
done
for pid in $pids; do kill -s KILL -- "-$pid" 2>/dev/null; done
# A process that is being killed may still create a file for a moment, and is in its control group until it is gone.
left() {
  for group in $cgroups; do
    [ ! -d "$group" ] || find "$group" -depth -type d -delete || return 0
  done
  ! rm -rf -- "$1"
}
tries=0
while left "$1" 2>/dev/null && [ "$tries" -lt 200 ]; do
  tries=$((tries + 1))
  sleep 0.05
done
