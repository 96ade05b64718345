python train.py --trainer CoOp --root /data/sets --seed 1 --config-file configs/coop.yaml \
  DATASET.NAME OxfordPets DATASET.NUM_SHOTS 8 TRAINER.COOP.N_CTX 16 TRAINER.COOP.CSC False \
  TRAINER.COOP.CLASS_TOKEN_POSITION middle TRAINER.COOP.PREC fp32
