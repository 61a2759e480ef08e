# pretrain.c: a bare `make` builds everything that needs no CUDA into build/. `make help` lists targets.
#
## make                   build everything that needs no CUDA
## make run               corpus, tokenizer, training, samples, plot; TEXT=FILE_OR_FOLDER trains on your own text
## make test              every component and every acceptance path once; ends with "N passed, N failed"
## make test-long         what is deeper: more layouts, orders, kills, compilers, and the sanitizers (test/README.md)
## make test-docs         the documents, the book and the guides: generated tables, commands, links, pages
## make test-course       the graders of the course, on empty, right and wrong answers (doc/course.md)
## make test-hosts        hosts as network namespaces, Open MPI, SLURM (as root, where they are installed)
### make check             headers as C11 and C++17, who includes whom, names, sizes of files and folders (budget.tsv)
### make asan              the whole suite again under AddressSanitizer and UBSan, in build/asan
### make tsan              what has threads, under ThreadSanitizer (clang and its OpenMP library)
### make test-arm          built for AArch64 and tested in an emulation: gcc-aarch64-linux-gnu and qemu-user (test/arm.sh)
## make bench             speed against this machine's own matrix-multiply peak
### make bench-data        tokenizer, deduplication and loader, beside tiktoken, tokenizers and datasketch where they are installed
### make parity            train on 1,049 layouts of ranks and compare every gradient with one rank's
### make layouts           60 random layouts: bits, and memory and traffic against the plan, to the byte
### make scaling           measure a scaling law on generated text, predict a larger run, train it; SMALL=1: minutes
### make same-bits         OLD=FOLDER: the build in FOLDER and this one train the same bits, on 33 layouts
### make mutate            seed known bugs, one at a time, and see the tests catch them
### make mutate-random     change N=300 operators at random (SEED=7), and count how many of these bugs the tests catch
### make mutate-cuda       the same for the CUDA kernels: each barrier, wait and bounds test removed in turn
### make attention-ladder  attention on a GPU, from the naive kernel to production; without a GPU it is only checked
### make bench-cuda        what a waiting CUDA thread costs on the CPU (dev/cuda_on_cpu)
### make fuzz              libFuzzer under ASan and UBSan on every parser: FUZZ_RUNS inputs each, or FUZZ_SECONDS
### make crash             kill, stop, move, corrupt and starve runs at random instants: what goes on must be bit for bit the same
### make campaign          MINUTES=120 SEED=1: harm by chance, under scripts/run_forever.sh: signals, bits, NaN, full disks, damage
### make bench-ranks       4 and 8 ranks on these cores beside one process, in tokens a second
### make steps             the nine programs of doc/steps.md, written to build/steps
### make bench-save        what saving every 20 steps beside training costs
### make crash-data        kill -9 a preparation of data at 50 random points, and one on several ranks: the same bytes
## make gpu               build/train_gpu, for NVIDIA GPUs: needs nvcc and cuBLAS (GPU_ARCH=sm_90, all; NVCC=...)
## make gpu-on-cpu        build/train_gpu_on_cpu: the same program in the emulation of dev/cuda_on_cpu
### make bench-gpu         tokens a second and MFU on a GPU, and its ops, beside PyTorch's where a python3 has it
## make journey           RUN='COMMAND': the files and functions that a command runs, in order of first call (doc/journeys.md)
## make docs              rewrite the generated tables in README.md and doc/
## make book              the chapters and the code as pages with a search: build/book/index.html (needs cmark-gfm; doc/book.md)
## make clean             remove build/ (runs/ stays)
#
# CC=clang and WERROR= (warnings stay warnings) work; V=1 shows the commands; EXTRA_CFLAGS and EXTRA_LDFLAGS
# are appended.
CC = gcc
B = build
CFLAGS = -O3 -g1# lines of a backtrace; for gdb, make B=build/gdb CFLAGS="-O0 -g"
WERROR = -Werror

ifneq ($(filter aarch64 arm64,$(shell uname -m)),)
ARCH = -mcpu=native
else
ARCH = -march=native
endif
# No -ffast-math: NaN must stay NaN. errno after sqrtf and floating-point traps are unused, and block SIMD.
FLAGS = -std=gnu11 $(CFLAGS) $(ARCH) -fno-math-errno -fno-trapping-math -fopenmp -Wall -Wextra $(WERROR) -Isrc -I.
ifneq ($(wildcard /usr/include/openblas),)
FLAGS += -I/usr/include/openblas
endif
ifneq ($(findstring clang,$(CC)),)
# clang reports each `omp simd` loop it declines to vectorise as a warning, and {.a = 1, 2} as lacking fields.
FLAGS += -Wno-pass-failed -Wno-missing-field-initializers
endif
FLAGS += $(EXTRA_CFLAGS)
LDLIBS = $(EXTRA_LDFLAGS) -lopenblas -linih -ljansson -lpcre2-8 -lutf8proc -lxxhash -lz -lzstd -lsnappy -lm
# MPI: the flags that its own compiler wrapper would pass. Asked for when a recipe runs, after setup.sh. A program that
# uses no call of MPI does not get linked to it. Another MPI: make B=build/openmpi MPICC=mpicc.openmpi
MPICC = $(shell for m in mpicc.mpich mpicc /usr/lib64/mpich/bin/mpicc; do command -v $$m && break; done)
MPI_FLAGS = $(filter -I%,$(shell $(MPICC) -show 2>/dev/null))
AS_NEEDED = $(if $(filter Linux,$(shell uname -s)),-Wl$(comma)--as-needed)
MPI_LIBS = $(AS_NEEDED) $(filter -L% -l% -Wl$(comma)-rpath%,$(shell $(MPICC) -show 2>/dev/null))
comma = ,

# Parallel unless told otherwise (-j1 on the command line wins).
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += -j$(shell nproc 2>/dev/null || echo 2)
endif
ifneq ($(V),1)
Q = @
endif

# Rooms (doc/architecture.md): what trains, what makes text, what looks on.
SRC = $(wildcard src/*/*.c data/*/*.c dev/plan/*.c dev/check/*.c dev/draw/*.c dev/show/*.c)
OBJ = $(SRC:%.c=$(B)/%.o)
HEADERS = $(wildcard src/*/*.h)
LIB = $(B)/libpretrain.a
BIN = $(patsubst %.c,$(B)/%,$(notdir $(wildcard train.c data/*.c dev/*.c)))
# Names of earlier programs: each says which command took its place.
MOVED = $(addprefix $(B)/,$(patsubst show_%.c,%,$(notdir $(wildcard dev/show/show_*.c))) dedup filter tokenize)
FUZZ_OBJ = $(patsubst dev/fuzz/%.c,$(B)/fuzz/%.o,$(filter-out dev/fuzz/drive.c,$(wildcard dev/fuzz/*.c)))
FUZZ = $(shell sed -n 's|^FUZZ.\([a-z0-9_]*\),.*|$(B)/fuzz/\1|p' dev/fuzz/*.c)
TESTS = $(patsubst test/%.c,$(B)/test/%,$(wildcard test/test_*.c test/mpi_*.c) test/layouts.c test/parity.c) # mpi_* and the last two: run by scripts

all: $(BIN) $(B)/course $(MOVED)

# Everything is rebuilt when the flags change, or the CPU that -march=native stands for.
CPU := $(shell { uname -m; grep -m2 -E '^(model name|flags|Features)' /proc/cpuinfo; } 2>/dev/null | cksum)
STAMP = $(subst ','\'',$(CC) $(FLAGS) $(LDLIBS) $(MPI_LIBS) $(CPU))
$(B)/flags: FORCE
	@mkdir -p $(B)
	@printf '%s\n' '$(STAMP)' | cmp -s - $@ || printf '%s\n' '$(STAMP)' >$@
# What is missing on this machine is installed before the first file is compiled. The stamp is included below: where make
# had to renew it, it reads this file again, and the flags are those of a machine that has the libraries.
$(B)/setup: scripts/setup.sh $(B)/flags
	@CC='$(CC)' EXTRA_CFLAGS='$(EXTRA_CFLAGS)' EXTRA_LDFLAGS='$(EXTRA_LDFLAGS)' scripts/setup.sh
	@touch $@

# What computes little compiles in half the time: the loop around the ops at -O2, plans (but for fits) and pictures at -O1.
LITTLE = $(filter-out $(B)/dev/plan/scaling%,$(filter $(B)/dev/plan/% $(B)/dev/draw/%,$(OBJ)))
$(LITTLE): private FLAGS := $(FLAGS:-O3=-O1)
$(B)/dev/plan/guides.o: private FLAGS := $(FLAGS:-O3=-O0)
$(B)/dev/plan/guides.o $(B)/dev/plan/published.o: private FLAGS += -I$(B)
$(filter $(addprefix $(B)/,src/net/% src/ckpt/% src/train/% src/eval/% src/check/% src/record/% src/models/% dev/check/% dev/show/% data/commands/%),$(OBJ)): \
    private FLAGS := $(FLAGS:-O3=-O2)
$(OBJ): $(B)/%.o: %.c $(B)/flags | $(B)/setup
	@mkdir -p $(@D)
	@echo "  CC $<"
	$(Q)$(CC) $(FLAGS) $(if $(filter %_mpi.c,$<),$(MPI_FLAGS)) -MMD -MP -c $< -o $@
# Tables of text, as rows of arrays in C.
$(B)/dev/plan/guides.o $(B)/dev/plan/published.o: %.o: %.inc
$(B)/%.inc: %.tsv dev/plan/table.awk
	@mkdir -p $(@D)
	@awk -f dev/plan/table.awk $< >$@
# It has the file in it, by .incbin, which -MMD does not see.
$(B)/src/record/page.o $(B)/pieces/src/record/page.o: src/record/report.html
$(LIB): $(OBJ)
	@rm -f $@
	$(Q)ar rcs $@ $^
define link
@mkdir -p $(@D) && rm -f $@
@echo "  LD $@"
$(Q)$(CC) $(FLAGS) -MMD -MP -MT $@ -MF $@.d $< $(LIB) $(LINKER) $(LDLIBS) $(MPI_LIBS) -o $@
endef
LINKER = $(if $(shell command -v ld.gold),-fuse-ld=gold)# in a third of the time
$(BIN): private FLAGS := $(FLAGS:-O3=-O2)
$(B)/train: private LDLIBS += -ldl -Wl,--export-dynamic # libraries of numerics.override call the program's functions
$(B)/%: %.c $(LIB)
	$(link)
$(B)/%: data/%.c $(LIB)
	$(link)
$(B)/%: dev/%.c $(LIB)
	$(link)
# Nine programs in one source (doc/steps.md).
TRAINERS = $(addprefix $(B)/steps/,1_bigram 2_attention 3_adamw 4_bpe 5_threads 6_bf16 7_ddp 8_zero_tp 9_pipeline)
steps: $(TRAINERS:=.c)
$(TRAINERS:=.c): $(B)/steps/%.c: dev/steps/steps.c dev/steps/steps.awk
	@mkdir -p $(@D)
	@awk -v step=$(firstword $(subst _, ,$*)) -f dev/steps/steps.awk $< >$@
$(TRAINERS): %: %.c $(LIB)
	$(link)
# Tests compile at -O0, in a third of the time; at -O2 those that compute much, or the same bits as the library.
COMPUTES = attention contamination cp cp_model formats gemm gemm_bf16 muon narrow narrow_matmul ops precision systematic unit
$(B)/test/%: private FLAGS := $(FLAGS:-O3=-O0)
$(COMPUTES:%=$(B)/test/test_%) $(B)/test/layouts: private FLAGS := $(FLAGS:-O3=-O2)
$(B)/test/%: test/%.c $(LIB)
	$(link) -lcmocka

$(MOVED): scripts/moved.sh
	@mkdir -p $(@D) && cp $< $@
$(B)/grades: dev/course/grades.c $(LIB)
	$(link)
$(B)/course: dev/course/course.sh $(B)/grades # a link: it looks for its assignments beside itself
	@mkdir -p $(@D) && ln -sfr $< $@

# Parsers and what feeds them (doc/fuzz.md). exit() jumps back, so that die() does not end the program.
FUZZ_DRIVER = $(B)/fuzz/drive.o # -fsanitize=fuzzer: libFuzzer instead
$(B)/fuzz/%.o: dev/fuzz/%.c dev/fuzz/fuzz.h $(B)/flags | $(B)/setup
	@mkdir -p $(@D)
	@echo "  CC $<"
	$(Q)$(CC) $(FLAGS) -MMD -MP -c $< -o $@
$(B)/fuzz/all: $(FUZZ_OBJ) $(filter %.o,$(FUZZ_DRIVER)) $(LIB)
	@rm -f $@
	@echo "  LD $@"
	$(Q)$(CC) $(FLAGS) $(FUZZ_OBJ) $(FUZZ_DRIVER) $(LIB) $(LDLIBS) $(MPI_LIBS) \
	    -Wl,--wrap=exit,--wrap=fopen,--wrap=fclose,--wrap=mmap,--wrap=munmap -o $@
$(FUZZ): $(B)/fuzz/all # links: the name chooses the target
	@ln -sf all $@

# ---- GPUs. The library is the same; what differs is the main program and the files src/*/*.cu.
NVCC = $(firstword $(wildcard $(shell command -v nvcc) /usr/local/cuda/bin/nvcc) nvcc)
GPU_ARCH = $(shell nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | sed 's/[.]//; s/^/sm_/')
GPU_NAME = $(or $(GPU_ARCH),sm_80) # its PTX: newer GPUs compile it when a program starts
GPU_CODE = $(if $(filter-out all,$(GPU_NAME)),-arch=$(strip $(GPU_NAME)),-gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=[sm_90,compute_90])
NVCC_FLAGS = -std=c++17 -O3 -lineinfo -Isrc -I. $(GPU_CODE) $(if $(WERROR),-Werror all-warnings) -Xcompiler -Wall,-Wextra,-fopenmp
KERNELS = src/ops/flash.cu $(filter-out src/ops/flash.cu,$(wildcard src/*/*.cu)) # the slowest first
GPU_MAIN = $(B)/train_on_gpu.o # train.c, with the device of train_gpu.cu
GPU_OBJECTS = $(patsubst %.cu,$(B)/gpu/%.o,train_gpu.cu $(KERNELS)) $(GPU_MAIN)
$(GPU_MAIN): train.c $(B)/flags | $(B)/setup
	@echo "  CC $< (for GPUs)"
	$(Q)$(CC) $(FLAGS) -DTRAIN_GPU -MMD -MP -c $< -o $@
gpu: $(B)/gpu/nvcc
	@echo '$(words $(KERNELS) x) CUDA files for $(strip $(GPU_NAME)): a minute or two on two cores (GPU_ARCH=all: sm_80 and sm_90)'
	@$(MAKE) --no-print-directory $(B)/train_gpu
$(B)/gpu/nvcc: FORCE
	@scripts/need_cuda.sh '$(NVCC)'
	@mkdir -p $(addprefix $(@D)/,$(sort $(dir $(KERNELS)))) $(@D)/dev/cuda_on_cpu/tests
	@printf '%s\n' '$(NVCC) $(NVCC_FLAGS)' | cmp -s - $@ || printf '%s\n' '$(NVCC) $(NVCC_FLAGS)' >$@
$(B)/gpu/%.o: %.cu $(B)/gpu/nvcc $(HEADERS)
	@echo "  NVCC $<"
	$(Q)$(NVCC) $(NVCC_FLAGS) -x cu -c $< -o $@
$(B)/train_gpu: $(GPU_OBJECTS) $(LIB)
	@echo "  LD $@"
	$(Q)nccl=$$(nm $(B)/gpu/src/comm/comm_nccl.o | grep -q 'U nccl' && echo -lnccl); \
	    $(NVCC) $(GPU_CODE) -Xcompiler -fopenmp $(GPU_OBJECTS) $(LIB) $(filter -L% -l%,$(LDLIBS) $(MPI_LIBS)) \
	    $(addprefix -Xlinker ,$(subst -Wl$(comma),,$(filter -Wl%,$(MPI_LIBS)))) $$nccl -lcublasLt -lcublas -Xlinker --export-dynamic -o $@
gpu-on-cpu: $(B)/train_gpu_on_cpu
# Built for a sanitizer when the library is. train_gpu_checked looks for races. The script knows what is new.
$(B)/train_gpu_on_cpu $(B)/train_gpu_checked: train_gpu.cu $(GPU_MAIN) $(KERNELS) $(HEADERS) $(wildcard dev/cuda_on_cpu/*.cc dev/cuda_on_cpu/*.h) $(LIB)
	@echo "  EMU $@"
	$(Q)BUILD=$(B) dev/cuda_on_cpu/build.sh $(if $(filter %checked,$@),checker,$(if $(findstring -fsanitize=address,$(EXTRA_CFLAGS)),asan,plain)) $@ train_gpu.cu \
	    $(GPU_MAIN) $(KERNELS) $(LIB) -- -fopenmp $(LDLIBS) $(MPI_LIBS)

SPEED = dev/cuda_on_cpu/tests/speed.cu $(filter src/ops/%,$(KERNELS)) # the ops, timed; for scripts/bench_gpu.sh
$(B)/speed: $(B)/gpu/nvcc $(patsubst %.cu,$(B)/gpu/%.o,$(SPEED)) $(LIB)
	@echo "  LD $@"
	$(Q)$(NVCC) $(GPU_CODE) -Xcompiler -fopenmp $(filter %.o %.a,$^) $(filter -L% -l%,$(LDLIBS)) -lcublasLt -lcublas -o $@
$(B)/speed_on_cpu: $(SPEED) $(HEADERS) $(wildcard dev/cuda_on_cpu/*.cc dev/cuda_on_cpu/*.h) $(LIB)
	@echo "  EMU $@"
	$(Q)BUILD=$(B) dev/cuda_on_cpu/build.sh plain $@ $(SPEED) $(LIB) -- -fopenmp $(LDLIBS)

# ---- what test/mutate_random.sh links and compiles with
define piece
@mkdir -p $(@D)
@echo "  CC $<"
$(Q)$(CC) $(FLAGS) -MMD -MP -c $< -o $@
endef
$(B)/pieces/%.o: %.c $(B)/flags | $(B)/setup
	$(piece)
$(B)/pieces/%.o: data/%.c $(B)/flags | $(B)/setup
	$(piece)
$(B)/pieces/%.o: dev/%.c $(B)/flags | $(B)/setup
	$(piece)
print-compile:
	@echo '$(CC) $(FLAGS) $(MPI_FLAGS)'
print-nvcc:
	@echo '$(NVCC) $(NVCC_FLAGS) -x cu'
print-programs:
	@echo '$(notdir $(BIN))'
print-libraries: # for scripts that link the library
	@echo '$(LDLIBS) $(MPI_LIBS)'

# ---- the two commands
export TEXT
run: START := $(shell date +%s)
run: $(B)/stories $(B)/prepare $(B)/plan $(B)/train
	@START=$(START) BUILD=$(B) scripts/run.sh "$$TEXT" $(ARGS)
# A test that does not compile counts as failed; the others still run.
# Programs are built in the recipe, so that what this took is counted.
tests-built = $(MAKE) --no-print-directory all && { $(MAKE) -k --no-print-directory test-programs || true; }; times >$(B)/times
test:
	+@$(tests-built)
	@BUILD=$(B) test/run.sh --built $(B)/times
test-programs: $(TESTS) $(FUZZ)
# Documents, the book and the guides; the course; hosts and launchers: each in all its depth (test/README.md).
test-docs test-course test-hosts: $(BIN) $(B)/course $(B)/test/mpi_comm $(B)/test/test_schema
	@BUILD=$(B) test/run.sh --long --circle $(@:test-%=%)
# What is deeper: more layouts, every order of the emulation, more kills, and the unit tests under the sanitizers.
test-long:
	+@$(tests-built)
	@status=0; BUILD=$(B) test/run.sh --long --built $(B)/times || status=1; $(MAKE) --no-print-directory asan-units || status=1; exit $$status

# ---- checks and tables
check:
	@CC='$(CC)' test/check_headers.sh
# At -O1: the sanitizers' own advice, and warnings there are about code that the sanitizers inserted. One test at a
# time: some of them build a second library there.
asan:
	@JOBS=1 $(MAKE) --no-print-directory B=$(B)/asan WERROR= test \
	    EXTRA_CFLAGS='$(EXTRA_CFLAGS) -O1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all'
# The programs of test/*.c alone.
asan-units:
	@$(MAKE) -k --no-print-directory B=$(B)/asan WERROR= asan-programs \
	    EXTRA_CFLAGS='$(EXTRA_CFLAGS) -O1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all'
asan-programs: $(BIN) $(TESTS)
	@BUILD=$(B) test/run.sh --units
# clang, for its OpenMP library: see test/tsan.sh.
TSAN_TESTS = test_ckpt_async test_offload test_comm test_contamination test_dedup test_dataset \
    test_tokenizer test_bpe test_model test_base
tsan:
	@$(MAKE) --no-print-directory B=$(B)/tsan CC=clang WERROR= tsan-programs \
	    EXTRA_CFLAGS='-O1 -fno-omit-frame-pointer -fsanitize=thread$(if $(EXTRA_CFLAGS), $(EXTRA_CFLAGS))'
	@BUILD=$(B)/tsan CC=clang test/tsan.sh $(TSAN_TESTS)
tsan-programs: $(B)/train $(B)/prepare $(B)/stories $(TSAN_TESTS:%=$(B)/test/%)
test-arm: $(B)/train $(B)/stories $(B)/prepare $(B)/export
	@BUILD=$(B) test/arm.sh
bench: $(B)/bench
	@mkdir -p runs && bash -o pipefail -c 'BUILD=$(B) scripts/bench.sh | tee runs/bench.txt'
bench-data: $(B)/prepare $(B)/stories $(B)/show
	@mkdir -p runs && bash -o pipefail -c 'BUILD=$(B) scripts/bench_data.sh | tee runs/bench_data.txt'
bench-cuda:
	@BUILD=$(B) dev/cuda_on_cpu/build.sh plain $(B)/cuda_bench dev/cuda_on_cpu/tests/bench.cu && $(B)/cuda_bench
bench-gpu: $(B)/stories $(B)/prepare $(B)/plan
	@mkdir -p runs && BUILD=$(B) NVCC='$(NVCC)' bash -o pipefail -c 'scripts/bench_gpu.sh | tee runs/bench_gpu.txt'
attention-ladder:
	@BUILD=$(B) NVCC='$(NVCC)' scripts/attention_ladder.sh
parity: $(BIN) $(B)/test/parity
	@mkdir -p runs && bash -o pipefail -c 'BUILD=$(B) test/parity.sh | tee runs/parity.txt'
layouts: $(BIN) $(B)/test/layouts
	@BUILD=$(B) test/test_layouts.sh random 60
scaling: $(B)/stories $(B)/prepare $(B)/train $(B)/plan $(B)/show
	@BUILD=$(B) SMALL=$(SMALL) scripts/scaling.sh
same-bits: $(B)/train $(B)/export
	@test/same_bits.sh '$(OLD)' $(B)
mutate:
	@test/mutate.sh
mutate-random:
	@test/mutate_random.sh
mutate-cuda:
	@dev/cuda_on_cpu/mutate.sh
fuzz-programs: $(FUZZ)
fuzz:
	@CC='$(CC)' BUILD=$(B) scripts/fuzz.sh
crash: $(BIN) $(B)/test/test_schema $(B)/test/test_ckpt_power
	@mkdir -p runs && bash -o pipefail -c 'BUILD=$(B) CC="$(CC)" JOBS=2 $(if $(AGAIN),DONE=runs/crash.txt) \
	    test/crash.sh $(if $(ONLY),"$(ONLY)") | tee $(if $(AGAIN),-a) runs/crash.txt'
campaign: $(BIN) $(B)/test/test_schema
	@mkdir -p runs && bash -o pipefail -c 'BUILD=$(B) test/campaign.sh | tee runs/campaign.txt'
bench-ranks: $(BIN)
	@mkdir -p runs && BUILD=$(B) bash -o pipefail -c 'scripts/bench_ranks.sh | tee runs/bench_ranks.md'
bench-save: $(BIN)
	@mkdir -p runs && bash -o pipefail -c 'BUILD=$(B) scripts/bench_save.sh | tee runs/bench_save.txt'
crash-data: $(B)/prepare
	@BUILD=$(B) test/test_recipe.sh 50
	@BUILD=$(B) test/test_recipe_ranks.sh 50
export RUN BASE FUNCTIONS MARKDOWN KEEP
journey:
	+@BUILD=$(B) CC='$(CC)' MAKE='$(MAKE)' scripts/journey.sh
docs: $(BIN)
	@BUILD=$(B) scripts/docs.sh
book:
	@BUILD=$(B) scripts/book.sh
help: # with ALL=1 those with three marks too
	@sed -n 's/^##$(if $(ALL),#\?) //p' Makefile
	@$(if $(ALL),:,echo 'make help ALL=1  the other targets: checks, sanitizers, benchmarks, fuzzing, crashes, mutations')
clean:
	rm -rf $(B)

ifneq ($(or $(filter-out help clean print-%,$(MAKECMDGOALS)),$(if $(MAKECMDGOALS),,all)),)
-include $(B)/setup
endif
-include $(wildcard $(BIN:=.d) $(B)/steps/*.d $(OBJ:.o=.d) $(GPU_MAIN:.o=.d) $(B)/test/*.d $(B)/fuzz/*.d $(B)/pieces/*.d $(B)/pieces/test/*.d)
FORCE:
.DELETE_ON_ERROR:
.PHONY: journey
.PHONY: all run test test-programs test-docs test-course test-hosts test-long asan-units asan-programs check asan tsan tsan-programs bench bench-data bench-cuda bench-gpu attention-ladder bench-ranks bench-save parity \
    steps layouts scaling same-bits mutate mutate-random print-compile print-nvcc print-programs mutate-cuda fuzz fuzz-programs crash crash-data campaign gpu gpu-on-cpu print-libraries docs book \
    help clean FORCE
