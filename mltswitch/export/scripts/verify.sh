#!/bin/bash
# Starts the network, pushes the plan to it, takes it back, and says what every image made of it.
#
#   bash verify.sh [--keep]        --keep leaves the network running
#
# Environment:
#   @PASSWORDS@    passwords of the switches; they are written nowhere
#   RESULTS            folder of what came of it; it must not exist (default: results)
#   BOOT_SECONDS       how long a switch may take until it answers by SSH (default: 900)
#   CONTAINERLAB       how containerlab is called (default: containerlab; or: sudo -E containerlab)
#
# The exit code is 0 where every switch took the plan, runs it, and went back; else that of `mltswitch lab results`.
set -u
# The plan is pushed to all of this inventory, whatever the caller has chosen for other networks.
unset MLTSWITCH_INVENTORY MLTSWITCH_LIMIT MLTSWITCH_CONFIRM
cd "$(dirname "${BASH_SOURCE[0]}")" || exit 1
fail() {
    echo "verify.sh: $1" >&2
    exit 2
}

keep=
case "$*" in
    "") ;;
    --keep) keep=yes ;;
    *) fail "only --keep is understood, not: $*" ;;
esac
containerlab=${CONTAINERLAB:-containerlab}
results=${RESULTS:-results}
boot_seconds=${BOOT_SECONDS:-900}
for variable in @PASSWORDS@; do
    [ -n "${!variable:-}" ] || fail "the environment variable $variable is not set: the password of those switches"
    export "${variable?}"
done
for program in mltswitch ${CONTAINERLAB:-@TOOL@}; do
    case $program in -*) continue ;; esac # options of sudo
    command -v "$program" >/dev/null || fail "$program is not installed, or not in PATH"
done
[ ! -e "$results" ] || fail "$results is there already: name another folder in RESULTS"

# Host keys and serial numbers are those of this run alone; so is the record of what was changed.
mkdir -p "$results" || exit 1
results=$(cd "$results" && pwd)
cp -r inventory "$results/inventory" || exit 1
export MLTSWITCH_STATE=$results/state
inventory=$results/inventory

end() {
    status=$?
    if [ -z "$keep" ]; then
        @DESTROY@ >>"$results/deploy.log" 2>&1 || echo "verify.sh: the network could not be taken down: $results/deploy.log" >&2
    fi
    exit "$status"
}

echo "== deploy"
if ! @DEPLOY@ >"$results/deploy.log" 2>&1; then
    tail -n 20 "$results/deploy.log" >&2
    trap end EXIT
    fail "the network could not be started: $results/deploy.log"
fi
trap end EXIT
trap 'exit 130' INT TERM

# A network that was just made has no keys that anybody could have confirmed before.
deadline=$((SECONDS + boot_seconds))
for switch in @SWITCHES@; do
    echo "== wait for $switch"
    until mltswitch trust -i "$inventory" --limit "$switch" --yes --json >"$results/trust-$switch.json" 2>"$results/trust-$switch.log"; do
        if [ "$SECONDS" -ge "$deadline" ]; then
            cat "$results/trust-$switch.log" >&2
            break
        fi
        sleep 5
    done
done

step() {
    name=$1
    shift
    echo "== mltswitch $*"
    mltswitch "$@" --json >"$results/$name.json" 2>"$results/$name.log"
    status=$?
    cat "$results/$name.log" >&2
    [ "$status" -ne 130 ] || exit 130
}

step lines lab lines plan.yaml -i "$inventory"
step check push plan.yaml -i "$inventory" --check
step push push plan.yaml -i "$inventory" --yes --accept
step verify verify plan.yaml -i "$inventory"
step capture capture plan.yaml -i "$inventory" -o "$results/capture.yaml"
change=$(sed -n 's/^  "change": "\(..*\)",$/\1/p' "$results/push.json")
if [ -n "$change" ]; then
    step rollback rollback "$change"
fi

echo "== what came of it ($results)"
mltswitch lab results "$results"
