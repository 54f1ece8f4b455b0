"""Checkpoints: a run resumes from its last finished phase, bit for bit.

    checkpoints/NAME/state-000003.safetensors    weights, targets, optimiser, counters after phase 3
    checkpoints/NAME/replay-000003.safetensors   what phase 3 added to replay, not the rings
    checkpoints/NAME/frames-000003-0000.safe...  its frames, where observations are images: packed
    records/NAME-000003.parquet                  the measurements of phase 3
    checkpoints/NAME/checkpoint-000003.json      the manifest: every file needed, with its checksum

Every file is written under another name, synced and renamed; the manifest comes last, so a phase is either finished or
not there. The files of the last two checkpoints are kept: if the newest is damaged, the one before it serves. The last
phase of a run has no replay, because no phase follows; to be run again it has that of the phase before. Only regular
files with these names are ever deleted. Only safetensors, JSON and Parquet: nothing that runs code when read.

    files.py        the names of these files, manifests and checksums
    saving.py       committing a phase, deleting old files
    writer.py       doing so in a thread, while the next phase trains
    loading.py      the newest intact checkpoint
    fingerprint.py  the settings that a resumed run must share
"""
