#!/bin/bash
# scripts/slurm_example.sh: a job for SLURM that saves before its time is over, queues itself again, and resumes.
#
#     sbatch scripts/slurm_example.sh
#
# The arithmetic: 2 nodes x 4 ranks; 8 hours are 28,800 s. SLURM sends SIGUSR1 120 s before the end, to this shell (B:),
# which passes it on to srun, and so to every rank: the ranks finish their step, save, and end with status 0. A save
# takes (bytes of the state) / (bytes a second of the file system): 16 bytes a parameter, so 120 s are enough for 1
# billion parameters at 200 MB/s. A job that fails loses at most run.save_every steps.
#
# The same script resumes whenever there is a checkpoint. If a node fails, the job step ends (--kill-on-bad-exit), SLURM
# puts the job back into the queue (--requeue), and it starts again from the newest checkpoint.
#SBATCH --job-name=pretrain
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --time=08:00:00
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x_%j.out
set -u
srun --mpi=pmi2 --kill-on-bad-exit=1 build/train "${CONFIG:-stories}" --run.name="${RUN_NAME:-slurm}" --run.save_every=200 \
    --run.hang_timeout=600 --ckpt.resume=auto &
step=$!
asked=
trap 'asked=$asked+; kill -USR1 $step' USR1
while # a signal ends a wait; the next one has srun's status, also when that has ended meanwhile
    before=$asked
    wait $step
    status=$?
    [ "$asked" != "$before" ]
do :; done

# Stopped by the signal and saved: queue the job again. (If the run was at its end, the next job trains nothing.)
if [ -n "$asked" ] && [ $status = 0 ]; then scontrol requeue "$SLURM_JOB_ID"; fi
exit $status
