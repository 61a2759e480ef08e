# scripts/rooms_common.sh: the tree as rooms, for scripts/house.sh and scripts/rooms.sh. Sourced at the top of the tree.
#
# A room is a folder of src/, data/ or dev/ with C files in it. Files in src/ itself are the room src; train.c,
# train_gpu.cu and the programs in data/ and dev/ are the room "programs". Folders of dev/ that are not part of the
# library or its programs (kernels to learn from, the emulator, fuzz targets) are not rooms.
workshops='course cuda_on_cpu fuzz matmul attention override reference book steps'

room_files() { # every source file of every room, with its room: ROOM<tab>FILE
    local file room
    for file in train.c train_gpu.cu src/*.[ch] src/*.cu src/*/*.[ch] src/*/*.cu data/*.c data/*/*.[ch] dev/*.c dev/*/*.[ch]; do
        [ -f "$file" ] || continue
        room=${file%/*}
        case $file in
        src/*/*) room=${room#src/} ;;
        src/* | data/*/*) ;;
        dev/*/*) case " $workshops " in *" ${room#dev/} "*) continue ;; esac ;;
        *) room=programs ;;
        esac
        printf '%s\t%s\n' "$room" "$file"
    done
}

room_folder() { # ROOM: where it is
    case $1 in src | data/* | dev/*) echo "$1" ;; *) echo "src/$1" ;; esac
}

# FROM<tab>TO for each #include "..." of a file of these rooms. A name counts from src/, from the top, or beside its file.
room_includes() { # LIST of room_files
    cut -f 2 "$1" | xargs awk -v list="$1" '
        BEGIN { while ((getline line < list) > 0) { split(line, part, "\t"); known[part[2]] } }
        /^[ \t]*#[ \t]*include[ \t]*"/ {
            name = $0; sub(/^[^"]*"/, "", name); sub(/".*/, "", name)
            beside = FILENAME; if (!sub(/\/[^\/]*$/, "/", beside)) beside = ""
            if (("src/" name) in known) name = "src/" name
            else if ((beside name) in known) name = beside name
            else if (!(name in known)) next
            print FILENAME "\t" name
        }'
}
