#!/bin/sh
# What a machine must have, looked for and said in plain words.
#
#   bootstrap.sh java                     is there a Java that Spark can use?
#   bootstrap.sh python                   print the Python that the environment will be made with:
#                                         $PYTHON, else the newest of the PATH that can
#   bootstrap.sh venv DIR PIP-ARGUMENT…   make or repair DIR and install into it
#
# A failure is one line "error: …" and one line "hint: …" on stderr, and exit code 1.
set -u

MIN_JAVA=17

die() {
    printf 'error: %s\nhint: %s\n' "$1" "$2" >&2
    exit 1
}

# Spark takes JAVA_HOME before the PATH, so it is judged first here too.
check_java() {
    if [ -n "${JAVA_HOME:-}" ]; then
        java=$JAVA_HOME/bin/java
        where="JAVA_HOME ($JAVA_HOME)"
        [ -x "$java" ] || die "JAVA_HOME is set to $JAVA_HOME, but there is no bin/java in it" \
            "point JAVA_HOME at a JDK or JRE of version $MIN_JAVA or newer, or unset it"
    else
        java=$(command -v java) || die "no Java found, and Spark needs Java $MIN_JAVA or newer" \
            "install a JRE (Debian: apt install openjdk-17-jre-headless; macOS: brew install openjdk@17) or set JAVA_HOME"
        where=$java
    fi
    # macOS has a /usr/bin/java that only says that there is none, so it must really run.
    text=$("$java" -version 2>&1) || die "the Java at $where does not run" \
        "try: $java -version; Spark needs Java $MIN_JAVA or newer"
    # 'openjdk version "17.0.15" 2025-04-15', 'java version "1.8.0_402"', 'openjdk version "21" …'
    version=$(printf '%s\n' "$text" | sed -n 's/^[^"]* version "\([0-9][0-9.]*\).*/\1/p' | head -n 1)
    major=${version%%.*}
    if [ "$major" = 1 ]; then
        major=${version#1.}
        major=${major%%.*}
    fi
    case $major in
    '' | *[!0-9]*)
        die "the Java at $where does not say which version it is" \
            "try: $java -version; Spark needs Java $MIN_JAVA or newer"
        ;;
    esac
    [ "$major" -ge "$MIN_JAVA" ] || die "the Java at $where is version $version, and Spark needs $MIN_JAVA or newer" \
        "install a newer JRE (Debian: apt install openjdk-17-jre-headless; macOS: brew install openjdk@17) and set JAVA_HOME to it"
}

# A name on the PATH is no proof: a pyenv shim fails when run, and Debian's python3 may lack ensurepip.
usable() {
    "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        usable "$PYTHON" || die "PYTHON is $PYTHON, which is no Python 3.11 or newer with the venv module" \
            "name another one, or unset PYTHON"
        printf '%s\n' "$PYTHON"
        return 0
    fi
    for name in python3.13 python3.12 python3.11 python3 python; do
        # every match on the PATH: a broken shim may hide a good one behind it
        old_ifs=$IFS
        IFS=:
        for dir in $PATH; do
            candidate=${dir:-.}/$name
            if [ -x "$candidate" ] && usable "$candidate"; then
                IFS=$old_ifs
                printf '%s\n' "$candidate"
                return 0
            fi
        done
        IFS=$old_ifs
    done
    die "no Python 3.11 or newer with the venv module found on the PATH" \
        "install one (Debian: apt install python3 python3-venv; macOS: brew install python@3.12)"
}

make_venv() {
    dir=$1
    shift
    if ! { [ -x "$dir/bin/python" ] && usable "$dir/bin/python"; }; then
        python=$(find_python) || exit 1
        printf 'making %s with %s\n' "$dir" "$python" >&2
        "$python" -m venv --clear "$dir" || die "could not make the virtual environment $dir" \
            "try: $python -m venv $dir"
    fi
    printf 'installing into %s (some minutes the first time)\n' "$dir" >&2
    "$dir/bin/python" -m pip install --quiet --disable-pip-version-check "$@" ||
        die "pip could not install what is needed into $dir" \
            "see pip's message above; a package index must be reachable"
}

case ${1:-} in
java) check_java ;;
python) find_python ;;
venv)
    [ $# -ge 3 ] || die "bootstrap.sh venv needs a directory and what to install" "see the top of $0"
    shift
    make_venv "$@"
    ;;
*) die "unknown step '${1:-}'" "one of: java, python, venv" ;;
esac
